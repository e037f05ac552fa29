"""Windows of the scores change no resampled rate: every draw is compared with one that counts all trials as copies."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.scoring import resampled_rates
from svtoolkit.scoring.bootstrap import bootstrap_intervals
from svtoolkit.scoring.metrics import eer_from_rates, error_rates, min_dcf_from_rates
from svtoolkit.scoring.resampled_rates import ResampledMetrics
from svtoolkit.scoring.speaker_trials import SpeakerTrials

METRICS = [eer_from_rates, *(functools.partial(min_dcf_from_rates, p_target=prior) for prior in (0.01, 0.05))]


def make_trials(rng: np.random.Generator, speakers: int, size: int) -> SpeakerTrials:
    enrol, test = rng.integers(speakers, size=(2, size), dtype=np.int32)
    test = np.where(rng.random(size) < 0.3, enrol, test)
    return SpeakerTrials(enrol, test, enrol == test, speakers)


def by_copies(scores: np.ndarray, trials: SpeakerTrials, drawn: np.ndarray) -> list[float]:
    copies = np.where(trials.target, drawn[trials.enrol], drawn[trials.enrol] * drawn[trials.test])
    rates = error_rates(np.repeat(scores, copies), np.repeat(trials.target, copies))
    return [metric(rates)[0] for metric in METRICS]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    separation=st.sampled_from([-1.0, 0.0, 1.0, 3.0, 8.0]),
    decimals=st.sampled_from([0, 1, 8]),
    widening=st.sampled_from([1.01, 2, 50]),
    run=st.sampled_from([1, 2, 7, 1000]),
)
def test_windows_and_runs_change_nothing(
    seed: int, separation: float, decimals: int, widening: float, run: int
) -> None:
    rng = np.random.default_rng(seed)
    trials = make_trials(rng, speakers=8, size=300)
    scores = np.round(rng.normal(size=300) + separation * trials.target, decimals)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampled_rates, "SMALL", 0)
        patch.setattr(resampled_rates, "WIDENING", widening)
        patch.setattr(resampled_rates, "RUN", run)
        patch.setattr(resampled_rates, "FEW", 0 if run < 1000 else 4096)
        patch.setattr(resampled_rates, "RUNS_AT_ONCE", 3)
        resampled = ResampledMetrics(scores, trials, METRICS)
        drawn = np.stack([np.bincount(rng.integers(8, size=8), minlength=8) for _ in range(10)])
        found = resampled(drawn, *trials.by_speaker(np.ones(300, dtype=bool)).weigh(drawn))
    assert found.tolist() == [by_copies(scores, trials, each) for each in drawn]


def test_a_long_list_is_cut_and_threads_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    trials = make_trials(rng, speakers=40, size=30_000)
    scores = rng.normal(size=30_000) + 4 * trials.target
    resampled = ResampledMetrics(scores, trials, METRICS)
    weighted = len(resampled._window.targets) + len(resampled._window.first)
    assert weighted < 15_000
    speakers = [[str(number) for number in side] for side in (trials.enrol, trials.test)]
    options = {"resamples": 30, "seed": 5}
    windowed = bootstrap_intervals(scores, *speakers, trials.target, METRICS, **options)
    monkeypatch.setattr(resampled_rates, "SMALL", 1 << 40)
    monkeypatch.setattr("svtoolkit.scoring.bootstrap.SMALL", 1 << 40)
    assert windowed == bootstrap_intervals(scores, *speakers, trials.target, METRICS, **options)
