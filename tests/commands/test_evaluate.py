from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from svtoolkit import load_model
from svtoolkit.cli import main
from svtoolkit.data.trials import hash_trials
from svtoolkit.scoring.calibration import Calibration

TRIALS = """\
a1 a2 target
a1 a3 target
b1 b2 target
c1 c2 target
a1 b1 nontarget
a2 c1 nontarget
b2 c2 nontarget
c1 b1 nontarget
"""
SCORES = [0.9, 0.8, 0.4, 0.7, 0.1, 0.5, -0.2, 0.3]
UTT2SPK = "a1 a\na2 a\na3 a\nb1 b\nb2 b\nc1 c\nc2 c\n"


@pytest.fixture
def scored(tmp_path) -> Path:
    """Folder "set" with trials, scores and utt2spk; one of four targets lies below one of four non-targets."""
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "trials").write_text(TRIALS)
    lines = [line.rsplit(" ", 1)[0] for line in TRIALS.splitlines()]
    (folder / "scores").write_text("".join(f"{pair} {s}\n" for pair, s in zip(lines, SCORES, strict=True)))
    (folder / "utt2spk").write_text(UTT2SPK)
    return folder


def evaluate(folder: Path, *words: str) -> int:
    return main(["evaluate", "--scores", f"{folder}/scores", "--trials", f"{folder}/trials", *words])


def result_of(path: Path) -> dict:
    return json.loads(path.read_text())


def test_the_result_is_written_beside_the_scores_and_said(scored, capsys):
    assert evaluate(scored) == 0
    result = result_of(scored / "scores.json")
    assert result["eer"] == pytest.approx(0.25)
    assert 0.4 <= result["eer_threshold"] <= 0.5
    assert result["eer_interval"] is None
    assert (result["trials"], result["targets"], result["nontargets"], result["missing"]) == (8, 4, 4, 0)
    assert set(result["min_dcf"]) == {"0.01", "0.05"}
    # at a prior of 1 % the best is to accept no non-target: a miss of one in four, normalised by the prior itself
    assert result["min_dcf"]["0.01"] == pytest.approx(0.25)
    ratios = np.array(SCORES)
    cllr = (np.log2(1 + np.exp(-ratios[:4])).mean() + np.log2(1 + np.exp(ratios[4:])).mean()) / 2
    assert result["cllr"] == pytest.approx(cllr)
    assert 0 < result["min_cllr"] < result["cllr"]
    out = capsys.readouterr().out
    assert out.startswith("set, scores: EER 25.00 %, minDCF(0.01) 0.2500, minDCF(0.05) 0.2500, Cllr ")
    assert f"threshold {result['eer_threshold']:.4f}, 8 trials, 0 missing\n" in out


def test_scores_that_say_nothing_are_spoken_of(scored, capsys):
    lines = (scored / "scores").read_text().splitlines()
    (scored / "scores").write_text("".join(f"{line.rsplit(' ', 1)[0]} 0.5\n" for line in lines))
    assert evaluate(scored) == 0
    assert (
        "set, scores: an EER of 50.00 % is chance: the scores say nothing of the speakers;" in capsys.readouterr().out
    )


def test_score_files_with_labels_and_lists_with_digits(scored):
    """As WeSpeaker writes them."""
    assert evaluate(scored) == 0
    plain = result_of(scored / "scores.json")
    labels = [line.split()[2] for line in TRIALS.splitlines()]
    lines = (scored / "scores").read_text().splitlines()
    (scored / "scores").write_text("".join(f"{line} {label}\n" for line, label in zip(lines, labels, strict=True)))
    pairs = [line.rsplit(" ", 1)[0] for line in TRIALS.splitlines()]
    digits = [int(label == "target") for label in labels]
    (scored / "trials").write_text("".join(f"{digit} {pair}\n" for digit, pair in zip(digits, pairs, strict=True)))
    assert evaluate(scored) == 0
    other = result_of(scored / "scores.json")
    changed = {"trials_sha256", "scores_sha256"}
    assert {key: value for key, value in other.items() if key not in changed} == {
        key: value for key, value in plain.items() if key not in changed
    }


def test_where_it_comes_from(scored):
    assert evaluate(scored, "--name", "my set", "resamples=0") == 0
    result = result_of(scored / "scores.json")
    assert (result["evaluation"], result["scores"]) == ("my set", "scores")
    assert (result["scores_file"], result["trials_file"]) == (f"{scored}/scores", f"{scored}/trials")
    assert result["trials_sha256"] == hash_trials(scored / "trials")
    assert result["scores_sha256"] == hashlib.sha256((scored / "scores").read_bytes()).hexdigest()
    assert result["command"] == (
        f"svt evaluate --scores {scored}/scores --trials {scored}/trials --name 'my set' resamples=0"
    )


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"normalisation": "none"}, "cosine"),
        ({"normalisation": "none", "subtract_mean": True}, "cosine, mean subtracted"),
        ({"normalisation": "as-norm", "subtract_mean": True}, "as-norm"),
        ({"normalisation": "s-norm"}, "s-norm"),
        ({}, "scores"),
    ],
)
def test_the_kind_of_scores_is_that_of_their_settings(scored, settings, name):
    (scored / "scores.yaml").write_text(yaml.safe_dump(settings))
    assert evaluate(scored) == 0
    assert result_of(scored / "scores.json")["scores"] == name


def test_a_score_file_called_none_is_not_renamed(scored):
    shutil.copy(scored / "scores", scored / "nonesuch")
    assert main(["evaluate", f"scores={scored}/nonesuch", f"trials={scored}/trials"]) == 0
    assert result_of(scored / "nonesuch.json")["scores"] == "nonesuch"


@pytest.mark.usefixtures("told_at_once")
def test_the_interval_needs_speakers(scored, capsys):
    words = ["--utt2spk", str(scored / "utt2spk"), "resamples=50", "confidence=0.9", "seed=4"]
    assert evaluate(scored, *words) == 0
    result = result_of(scored / "scores.json")
    low, high = result["eer_interval"]
    assert 0 <= low <= result["eer"] <= high <= 1
    assert result["confidence"] == 0.9
    said = capsys.readouterr()
    assert f"EER 25.00 % (90 % interval {100 * low:.2f} to {100 * high:.2f})" in said.out
    assert "interval: 50/50 resample (100 %)" in said.err
    assert evaluate(scored, *words, f"out={scored}/again.json") == 0
    assert result_of(scored / "again.json")["eer_interval"] == [low, high]


@pytest.mark.parametrize("label", ["target", "nontarget"])
def test_a_class_without_trials_is_refused(scored, capsys, label):
    for name in ("trials", "scores"):
        lines = (scored / name).read_text().splitlines(keepends=True)
        kept = [line for line, trial in zip(lines, TRIALS.splitlines(), strict=True) if trial.split()[2] == label]
        (scored / name).write_text("".join(kept))
    assert evaluate(scored) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {scored}/scores: all 4 trials are {label} trials; an error rate needs both kinds")
    assert error.count("\n") == 1
    assert not (scored / "scores.json").exists()


def test_missing_scores(scored, capsys):
    lines = (scored / "scores").read_text().splitlines(keepends=True)
    (scored / "scores").write_text("".join(lines[1:]))
    assert evaluate(scored) == 1
    assert "1 of 8 trials have no score: `a1 a2`" in capsys.readouterr().err
    assert not (scored / "scores.json").exists()
    assert evaluate(scored, "allow_missing=true") == 0
    result = result_of(scored / "scores.json")
    assert (result["trials"], result["targets"], result["missing"]) == (7, 3, 1)
    assert "7 trials, 1 missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("scores=/nowhere", "/nowhere: there is no such score file"),
        ("trials=/nowhere", "/nowhere: there is no such trial list"),
        ("utt2spk=/nowhere", "/nowhere: there is no such file"),
    ],
)
def test_files_that_are_not_there(scored, capsys, word, message):
    assert evaluate(scored, word) == 1
    assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    "settings", [None, {"normalisation": "as-norm"}, {"normalisation": "none", "subtract_mean": True}]
)
def test_only_the_threshold_of_plain_cosines_goes_into_a_model(tmp_path, scored, model, capsys, settings):
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    if settings is not None:
        (scored / "scores.yaml").write_text(yaml.safe_dump(settings))
    before = (copy / "model.yaml").read_bytes()
    assert evaluate(scored, f"store_threshold={copy}") == 1
    assert capsys.readouterr().err.startswith(f"error: {scored}/scores: store_threshold needs plain cosine scores")
    assert (copy / "model.yaml").read_bytes() == before
    assert not (scored / "scores.json").exists()


def test_a_damaged_settings_file_is_left_out_and_spoken_of(scored, capsys):
    (scored / "scores.yaml").write_text("normalisation: [")
    assert evaluate(scored) == 0
    assert result_of(scored / "scores.json")["scores"] == "scores"
    assert f"{scored}/scores.yaml: is no YAML mapping and is left out" in capsys.readouterr().out


# ---- the operating point and what is stored of it ----


def test_without_a_rate_the_operating_point_is_that_of_equal_errors(scored):
    assert evaluate(scored) == 0
    result = result_of(scored / "scores.json")
    # of the targets 0.4 is below, of the non-targets 0.5 is at or above each threshold from 0.4 to 0.5
    assert result["operating_point"] == {
        "name": "eer", "threshold": result["eer_threshold"], "p_miss": 0.25, "p_fa": 0.25
    }  # fmt: skip


@pytest.mark.parametrize(("fa_rate", "threshold", "p_miss", "p_fa"), [(0.25, 0.4, 0.0, 0.25), (0.4, 0.4, 0.0, 0.25)])
def test_the_operating_point_of_a_false_alarm_rate(scored, capsys, fa_rate, threshold, p_miss, p_fa):
    assert evaluate(scored, f"fa_rate={fa_rate}") == 0
    result = result_of(scored / "scores.json")
    assert result["operating_point"] == {
        "name": f"fa_rate={fa_rate}", "threshold": threshold, "p_miss": p_miss, "p_fa": p_fa
    }  # fmt: skip
    out = capsys.readouterr().out
    assert f"fa_rate={fa_rate} at threshold 0.4000: misses 0.00 %, false alarms 25 %" in out
    assert "with fewer than 30 the rate on other trials may be another" in out


@pytest.mark.parametrize(
    ("fa_rate", "message"),
    [
        (
            0.1,
            "fa_rate=0.1 is less than one of the 4 non-target trials; expected a list of 300 or more",
        ),
        (0, "fa_rate is 0; expected a share between 0 and 1, such as 0.01"),
        (1.5, "fa_rate is 1.5; expected a share between 0 and 1"),
    ],
)
def test_a_rate_that_the_trials_cannot_show(scored, capsys, fa_rate, message):
    assert evaluate(scored, f"fa_rate={fa_rate}") == 1
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not (scored / "scores.json").exists()


def test_a_rate_that_no_threshold_has(scored, capsys):
    lines = (scored / "scores").read_text().splitlines()
    (scored / "scores").write_text("".join(f"{line.rpartition(' ')[0]} 0.5\n" for line in lines))
    assert evaluate(scored, "fa_rate=0.3") == 1
    assert "no threshold has a false-alarm rate of 0.3 or less: the highest score is that of 100.00%" in (
        capsys.readouterr().err
    )
    assert evaluate(scored) == 0
    assert result_of(scored / "scores.json")["calibration"] is None


def test_what_was_asked_for_is_stored_with_its_rates_and_the_calibration(tmp_path, scored, model):
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    (scored / "scores.yaml").write_text("normalisation: none\n")
    assert evaluate(scored, "fa_rate=0.25", f"store_threshold={copy}") == 0
    stored = yaml.safe_load((copy / "model.yaml").read_text())["verification"]
    calibration, counts = stored.pop("calibration"), stored.pop("score_counts")
    assert (sum(counts["targets"]), sum(counts["nontargets"])) == (4, 4)
    assert stored == {
        "threshold": 0.4,
        "operating_point": "fa_rate=0.25",
        "p_miss": 0.0,
        "p_fa": 0.25,
        "eer": pytest.approx(0.25),
        "targets": 4,
        "nontargets": 4,
        "evaluation": "set",
        "trials_sha256": hash_trials(scored / "trials"),
    }
    assert calibration["scale"] > 0
    loaded = load_model(copy)
    assert loaded.threshold == 0.4
    assert loaded.stored.calibration == Calibration(**calibration)
    assert "fa_rate=0.25" in repr(loaded)
