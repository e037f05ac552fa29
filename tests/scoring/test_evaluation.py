"""The figures of a score file are those of the single functions."""

from __future__ import annotations

import functools
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.bootstrap import Interval, bootstrap_interval
from svtoolkit.scoring.calibration import cllr, fit_calibration, min_cllr
from svtoolkit.scoring.evaluation import evaluate_scores, judge_eer, scored_part
from svtoolkit.scoring.metrics import equal_error_rate, min_dcf, min_dcf_from_rates
from svtoolkit.scoring.score_file import write_scores

UTT2SPK = {f"s{speaker}-{number}": f"s{speaker}" for speaker in range(4) for number in range(3)}


@pytest.fixture
def scored(tmp_path: Path) -> tuple[str, Trials, np.ndarray]:
    names = sorted(UTT2SPK)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    target = np.array([UTT2SPK[a] == UTT2SPK[b] for a, b in pairs])
    scores = np.round(np.random.default_rng(0).normal(size=len(pairs)) + 1.5 * target, 6)
    trials = Trials([a for a, _ in pairs], [b for _, b in pairs], target)
    write_scores(tmp_path / "scores", trials, scores)
    return str(tmp_path / "scores"), trials, scores


def act_dcf_by_hand(scores: np.ndarray, target: np.ndarray, prior: float) -> float:
    accepted = scores >= np.log((1 - prior) / prior)
    return float(np.mean(~accepted[target]) + (1 - prior) / prior * np.mean(accepted[~target]))


def test_every_figure_is_that_of_its_function(scored: tuple[str, Trials, np.ndarray]) -> None:
    path, trials, scores = scored
    result = evaluate_scores(path, trials, utt2spk=UTT2SPK, resamples=50, confidence=0.9, seed=7)
    eer, threshold = equal_error_rate(scores, trials.target)
    enrol, test = ([UTT2SPK[name] for name in names] for names in (trials.enrol, trials.test))
    drawn = functools.partial(
        bootstrap_interval, scores, enrol, test, trials.target, resamples=50, confidence=0.9, seed=7
    )
    interval = drawn()

    def interval_of(prior: float) -> Interval:
        return drawn(functools.partial(min_dcf_from_rates, p_target=prior))

    expected = {
        "eer": eer,
        "eer_threshold": threshold,
        "eer_interval": list(interval),
        "confidence": 0.9,
        "min_dcf": {f"{prior:g}": min_dcf(scores, trials.target, p_target=prior)[0] for prior in (0.01, 0.05)},
        "min_dcf_intervals": {f"{prior:g}": list(interval_of(prior)) for prior in (0.01, 0.05)},
        "act_dcf": {f"{prior:g}": act_dcf_by_hand(scores, trials.target, prior) for prior in (0.01, 0.05)},
        "cllr": cllr(scores, trials.target),
        "min_cllr": min_cllr(scores, trials.target),
        "trials": 66,
        "targets": 12,
        "nontargets": 54,
        "missing": 0,
        "operating_point": {
            "name": "eer",
            "threshold": threshold,
            "p_miss": np.mean(scores[trials.target] < threshold),
            "p_fa": np.mean(scores[~trials.target] >= threshold),
        },
        "calibration": asdict(fit_calibration(scores, trials.target)),
    }
    assert {key: pytest.approx(value) if key == "act_dcf" else value for key, value in expected.items()} == result


@pytest.mark.parametrize(("utt2spk", "resamples"), [(None, 50), (UTT2SPK, 0)])
def test_there_is_no_interval_without_speakers_or_resamples(
    scored: tuple[str, Trials, np.ndarray], utt2spk: dict[str, str] | None, resamples: int
) -> None:
    path, trials, _ = scored
    result = evaluate_scores(path, trials, utt2spk=utt2spk, resamples=resamples, confidence=0.95, seed=0)
    assert result["eer_interval"] is result["min_dcf_intervals"] is None


def test_trials_without_a_score_are_refused_or_counted(scored: tuple[str, Trials, np.ndarray], tmp_path: Path) -> None:
    _, trials, scores = scored
    half = np.arange(0, len(trials), 2)
    part = Trials([trials.enrol[i] for i in half], [trials.test[i] for i in half], trials.target[half])
    write_scores(tmp_path / "half", part, scores[half])
    options = {"utt2spk": None, "resamples": 0, "confidence": 0.95, "seed": 0}
    with pytest.raises(UserError, match="33 of 66 trials have no score"):
        evaluate_scores(str(tmp_path / "half"), trials, **options)  # type: ignore[arg-type]
    result = evaluate_scores(str(tmp_path / "half"), trials, allow_missing=True, **options)  # type: ignore[arg-type]
    assert (result["trials"], result["missing"]) == (33, 33)
    assert result["eer"] == equal_error_rate(scores[half], trials.target[half])[0]


@pytest.mark.parametrize(("kept", "message"), [(True, "all 12 trials are target"), (False, "all 54 trials are nontar")])
def test_trials_of_one_class_are_spoken_of(
    scored: tuple[str, Trials, np.ndarray], tmp_path: Path, kept: bool, message: str
) -> None:
    _, trials, scores = scored
    rows = np.flatnonzero(trials.target == kept)
    write_scores(tmp_path / "some", trials.take(rows), scores[rows])
    for listed, missing in ((trials.take(rows), False), (trials, True)):
        with pytest.raises(UserError, match=rf"some: {message}.*; an error rate needs both kinds: add "):
            evaluate_scores(
                str(tmp_path / "some"),
                listed,
                utt2spk=None,
                resamples=0,
                confidence=0.95,
                seed=0,
                allow_missing=missing,
            )


@pytest.mark.parametrize(
    ("eer", "interval", "remark"),
    [
        (0.03, [0.01, 0.05], None),
        (0.3, None, None),
        (0.3, [0.2, 0.45], None),
        (0.47, None, "an EER of 47.00 % is chance: the scores say nothing of the speakers"),
        (0.52, [0.4, 0.6], "an EER of 52.00 % is chance"),
        (0.3, [0.1, 0.55], "an EER of 30.00 % cannot be told from chance, 50 %, by so few speakers"),
        (0.93, [0.9, 0.95], "an EER of 93.00 % is worse than chance: scores or labels are the wrong way round"),
    ],
)
def test_an_eer_at_chance_is_said_in_words(eer: float, interval: list[float] | None, remark: str | None) -> None:
    found = judge_eer({"eer": eer, "eer_interval": interval})
    assert found is None if remark is None else (found or "").startswith(remark)


def test_a_score_file_of_another_list_is_refused(scored: tuple[str, Trials, np.ndarray]) -> None:
    path, _, _ = scored
    other = Trials(["x"], ["y"], np.array([True]))
    with pytest.raises(UserError, match="for any of the 1 trials; give the trial list that was scored"):
        scored_part(other, path)
