"""svt crossval: folds that are disjoint, figures that are those of the commands, and what resumes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from command_material import TRAIN_WORDS, said, write_data

from svtoolkit.cli import main
from svtoolkit.commands import crossval
from svtoolkit.data.trials import read_trials
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.scoring.metrics import equal_error_rate
from svtoolkit.scoring.score_file import align_scores

WORDS = [*TRAIN_WORDS, "trainer.epochs=1", "data.crop_frames=20", "validation.speakers=0", "folds=2", "resamples=50"]


@pytest.fixture(scope="module")
def speech(tmp_path_factory) -> Path:
    """8 speakers of 3 utterances, with a table of sessions."""
    folder = write_data(tmp_path_factory.mktemp("speech"), range(8), 3)
    (folder / "utt2session").write_text("".join(f"{name} {name[-1]}\n" for name in read_utt2spk(folder / "utt2spk")))
    return folder


@pytest.fixture(scope="module")
def stopped_once(speech, tmp_path_factory) -> SimpleNamespace:
    """A cross-validation of two folds, stopped when the second was trained, and run again; not to be changed."""
    out = tmp_path_factory.mktemp("crossval") / "cv"
    words = ["crossval", *WORDS, f"data.train={speech}", f"exp_dir={out}"]
    trained: list[str] = []
    train, embed = crossval.train.run, crossval.embed.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossval.train, "run", lambda config, line: trained.append(config.exp_dir) or train(config, line))
        patch.setattr(crossval.embed, "run", lambda config, line: 143 if "fold2" in config.out else embed(config, line))
        assert main(words) == 143
        assert not (out / "crossval.json").exists()
        before = (out / "fold2" / "seed3" / "model" / "model.safetensors").read_bytes()
        patch.setattr(crossval.embed, "run", embed)
        assert main(words) == 0
    return SimpleNamespace(out=out, trained=trained, before=before)


@pytest.fixture
def finished(stopped_once) -> Path:
    return stopped_once.out


def result(out: Path) -> dict:
    return json.loads((out / "crossval.json").read_text())


def test_each_speaker_is_held_out_once_and_no_fold_trains_on_whom_it_evaluates(finished, speech):
    everyone = set(read_utt2spk(speech / "utt2spk").values())
    held_out: list[str] = []
    for number in (1, 2):
        train, evaluated = (
            set(read_utt2spk(finished / f"fold{number}" / part / "utt2spk").values()) for part in ("train", "eval")
        )
        assert train | evaluated == everyone
        assert not train & evaluated
        trials = read_trials(finished / f"fold{number}" / "eval" / "trials")
        assert trials.utterances <= read_utt2spk(finished / f"fold{number}" / "eval" / "utt2spk").keys()
        held_out += evaluated
    assert sorted(held_out) == sorted(everyone)
    cohort = (finished / "fold1" / "seed3" / "scores" / "as-norm.yaml").read_text()
    assert f"cohort_utt2spk: {finished}/fold1/train/utt2spk" in cohort
    assert "cohort_speakers: 4" in cohort


def test_the_figures_are_those_of_the_scores(finished):
    content = result(finished)
    assert [(one["fold"], one["seed"], one["epochs"]) for one in content["folds"]] == [(1, 3, 1), (2, 3, 1)]
    for name in ("cosine", "as-norm"):
        parts = []
        for one in content["folds"]:
            trials = read_trials(finished / f"fold{one['fold']}" / "eval" / "trials")
            scores = align_scores(trials, finished / f"fold{one['fold']}" / "seed3" / "scores" / name)
            assert one[name]["eer"] == equal_error_rate(scores, trials.target)[0]
            parts.append((scores, trials.target))
        scores, target = (np.concatenate(column) for column in zip(*parts, strict=True))
        assert content["pooled"][name]["eer"] == equal_error_rate(scores, target)[0]
        assert content["pooled"][name]["mean_eer"] == sum(one[name]["eer"] for one in content["folds"]) / 2
        evaluated = json.loads((finished / "scores" / f"{name}.json").read_text())
        assert evaluated["eer"] == content["pooled"][name]["eer"]
        assert evaluated["eer_interval"] == content["pooled"][name]["eer_interval"] is not None
    assert (finished / "eval" / "utt2session").is_file()


def test_what_is_finished_is_not_done_again_and_a_stopped_fold_resumes(stopped_once, finished, speech, capsys):
    assert [Path(exp_dir).parent.name for exp_dir in stopped_once.trained] == ["fold1", "fold2", "fold2"]
    assert (finished / "fold2" / "seed3" / "model" / "model.safetensors").read_bytes() == stopped_once.before
    words = ["crossval", *WORDS, f"data.train={speech}", f"exp_dir={finished}"]
    found = said(capsys, *words, "optim.lr=0.5")
    assert f"{finished}/config.yaml: the run there has another configuration: optim.lr was 0.02 and is 0.5" in found
    assert "holds a cross-validation already and resume=never" in said(capsys, *words, "resume=never")
    folds = finished.parent / "spk2fold"
    folds.write_text((finished / "spk2fold").read_text().replace("s00 1", "s00 0").replace("s00 2", "s00 0"))
    assert f"{finished}/data.json: the folder holds a cross-validation of" in said(capsys, *words, f"spk2fold={folds}")


def test_a_fold_that_was_deleted_is_done_again(finished, speech, tmp_path):
    out = tmp_path / "cv"
    shutil.copytree(finished, out)
    words = ["crossval", *WORDS, f"data.train={speech}", f"exp_dir={out}"]
    scores = (out / "fold2" / "seed3" / "scores" / "cosine").read_bytes()
    kept = (out / "fold1" / "eval" / "trials").stat().st_mtime_ns
    shutil.rmtree(out / "fold2")
    assert main(words) == 0
    assert (out / "fold2" / "seed3" / "scores" / "cosine").read_bytes() == scores
    assert (out / "fold1" / "eval" / "trials").stat().st_mtime_ns == kept


def test_the_moving_average_is_what_is_released(speech, tmp_path, monkeypatch):
    chosen = []
    monkeypatch.setattr(crossval.train, "run", lambda config, line: 0)
    monkeypatch.setattr(crossval.average, "run", lambda config, line: chosen.append(config) or 143)
    words = [*WORDS, "trainer.ema=0.9", "choose=ema", f"data.train={speech}", f"exp_dir={tmp_path}/cv"]
    assert main(["crossval", *words]) == 143
    assert [(config.choose, config.exp_dir) for config in chosen] == [("ema", f"{tmp_path}/cv/fold1/seed3")]


def test_each_fold_begins_with_the_network_that_has_not_heard_its_speakers(
    finished, speech, tmp_path, monkeypatch, capsys
):
    started = []
    train = crossval.train.run

    def stop_at_the_second(config, line):
        started.append(config.init_from)
        return 143 if len(started) == 2 else train(config, line)

    monkeypatch.setattr(crossval.train, "run", stop_at_the_second)
    words = ["crossval", *WORDS, f"data.train={speech}", f"init_from={finished}"]
    assert main([*words, f"exp_dir={tmp_path}/cv"]) == 143
    assert started == [f"{finished}/fold1/seed3", f"{finished}/fold2/seed3"]
    found = said(capsys, *words, "fold_seed=9", f"exp_dir={tmp_path}/other")
    assert f"{finished}/data.json: init_from is a cross-validation of other folds or data" in found
    assert f"spk2fold={finished}/spk2fold" in found
    assert len(started) == 2


def test_what_an_older_version_began_is_resumed(finished, speech, tmp_path, capsys):
    out = tmp_path / "cv"
    shutil.copytree(finished, out)
    config = out / "config.yaml"
    config.write_text("".join(f"{line}\n" for line in config.read_text().splitlines() if line != "choose: last"))
    words = ["crossval", *WORDS, f"data.train={speech}", f"exp_dir={out}"]
    assert "choose was 'last' and is 'best'" in said(capsys, *words, "choose=best", "validation.speakers=2")
    assert main(words) == 0


@pytest.mark.parametrize("further", [[], ["minutes=1"]])
def test_a_signal_stops_it_and_the_status_says_so(speech, tmp_path, monkeypatch, capsys, further):
    monkeypatch.setattr(crossval.train, "run", lambda config, line: 130)
    assert main(["crossval", *WORDS, *further, f"data.train={speech}", f"exp_dir={tmp_path}/cv"]) == 130
    assert capsys.readouterr().out.endswith("the same command resumes, and what is finished is not done again\n")
    assert not (tmp_path / "cv" / "crossval.json").exists()


def test_two_systems_are_compared_and_seeds_are_trials_of_their_own(finished, speech, tmp_path, capsys):
    """Of the trainings only their scores are looked at: those of the finished one under two seeds."""
    out = tmp_path / "cv"
    shutil.copytree(finished, out)
    for number in (1, 2):
        shutil.copytree(out / f"fold{number}" / "seed3", out / f"fold{number}" / "seed4")
        done = out / f"fold{number}" / "seed4" / "fold.json"
        done.write_text(done.read_text().replace('"seed": 3', '"seed": 4'))
    assert main(["crossval", *WORDS, "seeds=[3,4]", f"data.train={speech}", f"exp_dir={out}"]) == 0
    content = result(out)
    assert content["pooled"]["cosine"]["trials"] == 2 * result(finished)["pooled"]["cosine"]["trials"]
    assert content["pooled"]["cosine"]["eer"] == result(finished)["pooled"]["cosine"]["eer"]
    trials = read_trials(out / "eval" / "trials")
    assert {name.partition("/")[0] for name in trials.utterances} == {"seed3", "seed4"}
    capsys.readouterr()
    words = [f"{out}/scores/cosine.json", f"{out}/scores/as-norm.json", "resamples=80"]
    assert main(["compare", *words]) == 0
    assert "8 speakers" in capsys.readouterr().out
    refused = said(capsys, "compare", f"{out}/scores/cosine.json", f"{finished}/scores/cosine.json")
    assert "can be compared on the same trials alone" in refused


def test_back_ends_are_added_without_training_or_embedding_again(finished, speech, tmp_path, monkeypatch, capsys):
    out = tmp_path / "cv"
    shutil.copytree(finished, out)
    for name in ("train", "average", "embed"):
        monkeypatch.setattr(getattr(crossval, name), "run", lambda config, line: pytest.fail("is done again"))
    scored: list[str] = []
    score = crossval.score.run
    monkeypatch.setattr(crossval.score, "run", lambda config, line: scored.append(config.out) or score(config, line))
    words = ["crossval", *WORDS, f"data.train={speech}", f"exp_dir={out}"]
    assert main([*words, "backends=[as-norm,plda,wccn-as-norm]"]) == 0
    folds = [out / f"fold{number}" / "seed3" for number in (1, 2)]
    assert scored == [str(fold / "scores" / name) for fold in folds for name in ("plda", "wccn-as-norm")]
    content = result(out)
    assert list(content["pooled"]) == ["as-norm", "plda", "wccn-as-norm"]
    assert content["pooled"]["as-norm"]["eer"] == result(finished)["pooled"]["as-norm"]["eer"]
    for fold, one in zip(folds, content["folds"], strict=True):
        held_out = set(read_utt2spk(fold.parent / "eval" / "utt2spk"))
        trained = read_utt2spk(fold.parent / "train" / "utt2spk")
        facts = yaml.safe_load((fold / "backends" / "plda.safetensors.yaml").read_text())
        assert (facts["utterances"], facts["utt2spk"]) == (len(trained), str(fold.parent / "train" / "utt2spk"))
        assert not held_out & set(trained)
        trials = read_trials(fold.parent / "eval" / "trials")
        for name in ("plda", "wccn-as-norm"):
            scores = align_scores(trials, fold / "scores" / name)
            assert one[name]["eer"] == equal_error_rate(scores, trials.target)[0]
    evaluated = json.loads((out / "scores" / "wccn-as-norm.json").read_text())
    assert evaluated["scores"] == "wccn, as-norm"
    capsys.readouterr()
    assert main(["compare", f"{out}/scores/as-norm.json", f"{out}/scores/plda.json", "resamples=80"]) == 0
    scored.clear()
    assert main([*words, "backends=[plda]"]) == 0
    assert not scored


def test_minutes_choose_the_epochs_by_one_that_is_timed(speech, tmp_path, monkeypatch, capsys):
    epochs = []
    run = crossval.train.run

    def timed(config, line):
        epochs.append(config.trainer.epochs)
        return run(config, line) if len(epochs) == 1 else 143

    monkeypatch.setattr(crossval.train, "run", timed)
    words = ["crossval", *WORDS, f"data.train={speech}", f"exp_dir={tmp_path}/cv"]
    assert main([*words, "minutes=1"]) == 143
    noted = json.loads((tmp_path / "cv" / "epochs.json").read_text())
    assert epochs == [1, int(60 / noted["seconds_of_an_epoch"])] == [1, noted["epochs"]]
    assert not (tmp_path / "cv" / "timed").exists()
    epochs.clear()
    assert "more than minutes=1e-06" in said(capsys, *words, "minutes=1e-6")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["folds=1"], "folds is 1, expected 2 or more"),
        (
            ["folds=5"],
            "folds is 5, but there are 8 speakers, and trials of a fold need two; expected 10",
        ),
        (["backends=[pldda]"], "backends: there is no 'pldda'; did you mean 'plda'? (all: cosine, as-norm, lda, "),
        (["backends=[]"], "backends is [], expected one or more of cosine, as-norm, lda, lda-as-norm, wccn, "),
        (["backends=[lda,lda]"], "backends is ['lda', 'lda'], expected one or more of "),
        (["seeds=[1,1]"], "seeds is [1, 1], expected each seed once"),
        (["average=0"], "average is 0, expected 1 or more"),
        (["choose=first"], "choose is 'first', expected last, best or ema"),
        (["choose=ema"], "choose=ema needs a moving average, and trainer.ema is null; set trainer.ema=0.999"),
        (["choose=best"], "choose=best needs validation, and validation.speakers is 0"),
        (["only=[3]"], "only is [3], expected folds from 1 to 2, each once, or [] for all"),
        (["only=[1,1]"], "only is [1, 1], expected folds from 1 to 2, each once"),
        (["top_n=1"], "top_n is 1, expected 2 or more"),
        (["minutes=0"], "minutes is 0, expected more than 0, or null"),
        (["confidence=1"], "confidence is 1.0; expected a share between 0 and 1"),
        (["resamples=1"], "resamples is 1, expected 2 or more"),
        (["spk2fold=/nowhere"], "/nowhere: there is no such file; expected lines `speaker fold`"),
    ],
)
def test_refuses_before_anything_is_written(speech, tmp_path, capsys, words, message):
    found = said(capsys, "crossval", *WORDS, *words, f"data.train={speech}", f"exp_dir={tmp_path}/cv")
    assert found.startswith(f"error: {message}")
    assert not (tmp_path / "cv").exists()


def test_processes_share_the_folds_and_the_last_pools(finished, speech, tmp_path, monkeypatch, capsys):
    """What one process gives for all folds, two give that have one each."""
    out = tmp_path / "cv"
    words = ["crossval", *WORDS, f"data.train={speech}", f"exp_dir={out}"]
    train = crossval.train.run

    def meanwhile(config, line):
        """Another process, at this point: fold 1 is held, and its settings stand."""
        monkeypatch.setattr(crossval.train, "run", train)
        assert f"{out}: another process is at work on fold 1; wait for it, or stop it" in said(capsys, *words)
        assert "optim.lr was 0.02 and is 0.5" in said(capsys, *words, "only=[2]", "optim.lr=0.5")
        assert main([*words, "only=[2]"]) == 0
        return train(config, line)

    monkeypatch.setattr(crossval.train, "run", meanwhile)
    before = (finished / "crossval.json").read_bytes()
    assert main([*words, "only=[1]"]) == 0
    found = capsys.readouterr().out
    assert "1 of 2 trainings are finished; who finishes the last pools the scores" in found
    assert re.search(r"^fold 2, seed 3: EER cosine .*, as-norm .* % *; .* 1 epochs in", found, re.MULTILINE)
    pooled, whole = result(out)["pooled"], json.loads(before)["pooled"]
    assert pooled == whole
    assert (out / "scores" / "cosine").read_bytes() == (finished / "scores" / "cosine").read_bytes()
