"""svt fuse: scores of training speakers train it, those of others are fused; mistakes are sentences."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_material import said

from svtoolkit.cli import main
from svtoolkit.data.trial_drawing import make_trials
from svtoolkit.data.trials import Trials, write_trials
from svtoolkit.data.utt2spk import invert
from svtoolkit.scoring.quality.table import QualityTable, write_quality
from svtoolkit.scoring.score_file import read_scores, write_scores


def write_side(folder: Path, speakers: range, seed: int) -> Trials:
    """trials, utt2spk, quality and the scores a and b of so many speakers of 12 utterances."""
    folder.mkdir()
    utt2spk = {f"s{speaker}-{number:02d}": f"s{speaker}" for speaker in speakers for number in range(12)}
    trials = make_trials(invert(utt2spk), seed=seed)
    write_trials(folder / "trials", trials)
    (folder / "utt2spk").write_text("".join(f"{name} {speaker}\n" for name, speaker in sorted(utt2spk.items())))
    rng = np.random.default_rng(seed)
    table = QualityTable(["log_duration"], sorted(utt2spk), rng.normal(1.0, 0.5, (len(utt2spk), 1)))
    write_quality(folder / "quality", table)
    for name in ("a", "b"):
        write_scores(folder / name, trials, rng.normal(0.2 * trials.target, 0.1))
    return trials


@pytest.fixture
def lists(tmp_path) -> Path:
    write_side(tmp_path / "train", range(100, 110), 1)
    write_side(tmp_path / "eval", range(200, 208), 2)
    return tmp_path


def words(folder: Path, *changes: str) -> list[str]:
    """The command; a change replaces the key that it names, `key=` takes it away."""
    train, test = folder / "train", folder / "eval"
    keys = {
        "scores": f"[{test / 'a'},{test / 'b'}]", "trials": test / "trials", "utt2spk": test / "utt2spk",
        "quality": test / "quality", "train_scores": f"[{train / 'a'},{train / 'b'}]",
        "train_trials": train / "trials", "train_quality": train / "quality", "train_utt2spk": train / "utt2spk",
        "out": folder / "fused",
    }  # fmt: skip
    keys |= dict(change.split("=", 1) for change in changes)
    return ["fuse", *(f"{key}={value}" for key, value in keys.items() if value != "")]


def eer(folder: Path, scores: Path) -> dict:
    assert main(["evaluate", f"scores={scores}", f"trials={folder / 'eval' / 'trials'}"]) == 0
    return json.loads(Path(f"{scores}.json").read_text())


def test_fused_scores_are_better_and_calibrated(lists, capsys):
    assert main(words(lists)) == 0
    out = capsys.readouterr().out
    assert "trained with 900 trials of 10 speakers: Cllr 0." in out
    assert "score 1: weight" in out
    assert "10 speakers are few: weights fit them alone" in out
    fused = eer(lists, lists / "fused")
    single = [eer(lists, lists / "eval" / name) for name in ("a", "b")]
    assert fused["eer"] < min(each["eer"] for each in single)
    assert fused["cllr"] < min(each["cllr"] for each in single)
    assert fused["cllr"] < fused["min_cllr"] + 0.1
    record = yaml.safe_load((lists / "fused.yaml").read_text())
    assert record["trained"]["speakers"] == [f"s{number}" for number in range(100, 110)]
    assert record["command"].startswith("svt fuse")


def test_a_trained_fusion_is_applied_as_it_was(lists):
    assert main(words(lists)) == 0
    away = [f"train_{key}=" for key in ("scores", "trials", "quality", "utt2spk")]
    assert main(words(lists, *away, f"fusion={lists / 'fused.yaml'}", f"out={lists / 'again'}")) == 0
    assert (lists / "again").read_bytes() == (lists / "fused").read_bytes()
    assert main(words(lists, *away, f"fusion={lists / 'again.yaml'}", f"out={lists / 'third'}")) == 0
    assert (lists / "third").read_bytes() == (lists / "fused").read_bytes()


def test_the_order_of_lines_does_not_matter(lists):
    assert main(words(lists)) == 0
    fused = (lists / "fused").read_bytes()
    for file in ("train/a", "eval/b", "train/quality", "eval/quality"):
        header, *lines = (lists / file).read_text().splitlines(keepends=True)
        (lists / file).write_text("".join([header, *reversed(lines)]))
    assert main(words(lists)) == 0
    assert (lists / "fused").read_bytes() == fused


def test_one_system_without_quality_is_calibrated(lists):
    train, test = lists / "train", lists / "eval"
    changes = [f"scores=[{test / 'a'}]", f"train_scores=[{train / 'a'}]", "quality=", "train_quality="]
    assert main(words(lists, *changes)) == 0
    np.testing.assert_array_equal(
        np.argsort(read_scores(lists / "fused")[2], kind="stable"),
        np.argsort(read_scores(test / "a")[2], kind="stable"),
    )
    plain, fused = eer(lists, test / "a"), eer(lists, lists / "fused")
    assert fused["eer"] == plain["eer"]
    assert fused["cllr"] < plain["cllr"]


def test_without_speakers_it_is_said(lists, capsys):
    assert main(words(lists, "utt2spk=", "train_utt2spk=")) == 0
    captured = capsys.readouterr()
    assert "whether both lists share speakers is not checked" in captured.out + captured.err
    assert yaml.safe_load((lists / "fused.yaml").read_text())["trained"]["speakers"] is None


def test_shared_speakers_are_refused_when_it_is_trained_and_when_it_is_applied(lists, capsys):
    shared = lists / "eval" / "shared"
    shared.write_text((lists / "eval" / "utt2spk").read_text().replace(" s200", " s100").replace(" s201", " s101"))
    sentence = "2 speakers are in the trials that train the fusion and in those that it is for: s100, s101"
    assert sentence in said(capsys, *words(lists, f"utt2spk={shared}"))
    assert not (lists / "fused").exists()
    assert main(words(lists)) == 0
    away = [f"train_{key}=" for key in ("scores", "trials", "quality", "utt2spk")]
    trained = [f"fusion={lists / 'fused.yaml'}", f"out={lists / 'again'}"]
    assert sentence in said(capsys, *words(lists, *away, *trained, f"utt2spk={shared}"))
    assert not (lists / "again").exists()


def test_shared_utterances_are_refused(lists, capsys):
    train = lists / "train"
    changes = [f"trials={train / 'trials'}", f"scores=[{train / 'a'},{train / 'b'}]", f"quality={train / 'quality'}"]
    found = said(capsys, *words(lists, *changes, "utt2spk=", "train_utt2spk="))
    assert "120 utterances are in" in found
    assert "train the fusion with trials of training speakers" in found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["scores="], "scores lists no file; give one of each system"),
        (["train_scores="], "a fusion is trained with train_scores=[a,b] and train_trials=FILE"),
        (["train_trials="], "a fusion is trained with train_scores=[a,b] and train_trials=FILE"),
        (["quality="], "train_quality is given without quality; give both, or neither"),
        (["train_quality="], "quality is given without train_quality; give both, or neither"),
        (["p_target=1"], "p_target is 1; expected a share between 0 and 1"),
        (["l2=0"], "l2 is 0; expected a small number above 0"),
        (["fusion=x.yaml"], "train_scores trains a fusion, but fusion=x.yaml is trained already; leave one out"),
    ],
)
def test_words_that_contradict_each_other(lists, changes, message, capsys):
    assert message in said(capsys, *words(lists, *changes))
    assert not (lists / "fused").exists()


def test_as_many_systems_as_it_was_trained_with(lists, capsys):
    found = said(capsys, *words(lists, f"scores=[{lists / 'eval' / 'a'}]"))
    assert "scores lists 1 files, train_scores 2; expected one of each system in both, in the same order" in found
    assert main(words(lists)) == 0
    away = [f"train_{key}=" for key in ("scores", "trials", "quality", "utt2spk")]
    trained = [f"fusion={lists / 'fused.yaml'}", f"out={lists / 'again'}", "quality="]
    assert "give as many scores as it was trained with" in said(capsys, *words(lists, *away, *trained))


def test_what_it_reads_is_not_overwritten(lists, capsys):
    assert "would overwrite the scores that are fused" in said(capsys, *words(lists, f"out={lists / 'eval' / 'b'}"))


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("train/a", 3, None, "train/a: 1 of 900 trials have no score"),
        ("eval/b", 3, "x y 1.0", "eval/b: 1 of 720 trials have no score"),
        ("eval/a", 5, "x y nan", "eval/a:5: the score of `x y` is nan; expected a finite number"),
        ("train/b", 2, "x y", "train/b:2: found 'x y', expected `enrol test score`"),
        ("eval/quality", 4, None, "eval/quality: has no line for 1 of 96 utterances of the trials"),
        ("train/quality", 4, "s100-02 inf", "train/quality:4: log_duration is 'inf', expected a finite number"),
        ("train/trials", 2, "x y same", "train/trials:2: found 'x y same', expected"),
    ],
)
def test_files_that_do_not_fit(lists, file, line, text, message, capsys):
    lines = (lists / file).read_text().splitlines()
    lines[line - 1 : line] = [] if text is None else [text]
    (lists / file).write_text("\n".join(lines) + "\n")
    assert message in said(capsys, *words(lists))
    assert not (lists / "fused").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no such file; expected the <out>.yaml that `svt fuse` wrote"),
        ("a: 1\n", "holds no weights and offset of a fusion; expected the <out>.yaml that `svt fuse` wrote"),
        ("trained: {fusion: {weights: {score 1: .nan}, offset: 1}}\n", "holds a weight or an offset that is not"),
    ],
)
def test_what_is_no_trained_fusion(lists, text, message, capsys):
    if text is not None:
        (lists / "f.yaml").write_text(text)
    away = [f"train_{key}=" for key in ("scores", "trials", "quality", "utt2spk")]
    found = said(capsys, *words(lists, *away, f"fusion={lists / 'f.yaml'}"))
    assert "f.yaml: " in found
    assert message in found
