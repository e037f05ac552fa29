"""Intervals over resampled speakers: against copies of trials written out, and against simulated truth."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.bootstrap import bootstrap_interval, trial_speakers
from svtoolkit.scoring.metrics import (
    eer_from_rates,
    equal_error_rate,
    min_dcf,
    min_dcf_from_rates,
)

GOOD = {
    "scores": [0.9, 0.8, 0.1],
    "enrol_speakers": ["a", "b", "a"],
    "test_speakers": ["a", "b", "b"],
    "target": [True, True, False],
}


def simulate(speakers=12, utterances=3, spread=1.0, seed=0):
    """All pairs of utterances; a speaker's own shift makes its trials stand and fall together."""
    rng = np.random.default_rng(seed)
    shift = spread * rng.normal(size=speakers)
    owner = np.repeat(np.arange(speakers), utterances)
    first, second = (np.array(side) for side in zip(*itertools.combinations(range(len(owner)), 2), strict=True))
    target = owner[first] == owner[second]
    scores = 2.5 * target + shift[owner[first]] + shift[owner[second]] + rng.normal(size=len(first))
    return scores, [f"s{owner[row]}" for row in first], [f"s{owner[row]}" for row in second], target


def resample_by_copies(scores, enrol, test, target, metric, resamples, seed):
    """The same draws with every trial written out as often as it counts."""
    names = list(dict.fromkeys([*enrol, *test]))
    rng = np.random.default_rng(seed)
    values = []
    while len(values) < resamples:
        drawn = [names[pick] for pick in rng.integers(len(names), size=len(names))]
        copies, labels = [], []
        for score, one, other, same in zip(scores, enrol, test, target, strict=True):
            times = drawn.count(one) if same else drawn.count(one) * drawn.count(other)
            copies += [score] * times
            labels += [same] * times
        if any(labels) and not all(labels):
            values.append(metric(np.array(copies), np.array(labels))[0])
    return values


@pytest.mark.parametrize(
    ("from_rates", "plain"),
    [
        (eer_from_rates, equal_error_rate),
        (functools.partial(min_dcf_from_rates, p_target=0.1), functools.partial(min_dcf, p_target=0.1)),
    ],
)
@pytest.mark.parametrize("decimals", [0, 9])
def test_interval_is_that_of_copied_trials(from_rates, plain, decimals):
    scores, *sides, target = simulate(speakers=6)
    scores = np.round(scores, decimals)
    values = resample_by_copies(scores, *sides, target, plain, resamples=30, seed=4)
    interval = bootstrap_interval(scores, *sides, target, from_rates, resamples=30, confidence=0.8, seed=4)
    np.testing.assert_allclose(interval, np.quantile(values, [0.1, 0.9]), atol=1e-12)


def test_interval_holds_the_estimate_and_repeats():
    scores, *sides, target = simulate()
    rate, _ = equal_error_rate(scores, target)
    interval = bootstrap_interval(scores, *sides, target)
    assert interval.low < rate < interval.high
    assert interval == bootstrap_interval(scores, *sides, target)
    assert interval != bootstrap_interval(scores, *sides, target, seed=1)
    wider = bootstrap_interval(scores, *sides, target, confidence=0.99)
    assert wider.low < interval.low
    assert wider.high > interval.high


def test_dependent_trials_widen_the_interval():
    scores, *sides, target = simulate(speakers=20, utterances=6, spread=1.0)
    interval = bootstrap_interval(scores, *sides, target, resamples=200)
    rng = np.random.default_rng(0)
    picks = (rng.integers(len(scores), size=len(scores)) for _ in range(200))
    by_trial = np.quantile([equal_error_rate(scores[pick], target[pick])[0] for pick in picks], [0.025, 0.975])
    assert interval.high - interval.low > 2 * (by_trial[1] - by_trial[0])


def test_more_speakers_narrow_the_interval():
    few, many = (bootstrap_interval(*simulate(speakers=speakers, spread=0.5), resamples=200) for speakers in (10, 80))
    assert many.high - many.low < 0.6 * (few.high - few.low)


def test_interval_covers_the_true_rate():
    truth = equal_error_rate(*itertools.compress(simulate(speakers=200, spread=0.5, seed=99), (1, 0, 0, 1)))[0]
    hits = 0
    for seed in range(40):
        interval = bootstrap_interval(*simulate(speakers=20, spread=0.5, seed=seed), resamples=100, confidence=0.9)
        hits += interval.low <= truth <= interval.high
    assert 31 <= hits <= 40


def test_perfect_scores_stay_perfect():
    _, *sides, target = simulate()
    assert bootstrap_interval(target.astype(float), *sides, target, resamples=50) == (0.0, 0.0)


def test_draws_without_a_class_are_repeated():
    # Of two speakers every second draw holds one of them twice, and no non-target trial.
    assert bootstrap_interval(**GOOD, resamples=50) == (0.0, 0.0)
    # The rarest case: one speaker with a target trial, two others with the only non-target trial.
    assert bootstrap_interval([0.0, 1.0], ["a", "b"], ["a", "c"], [True, False], resamples=50) == (1.0, 1.0)


def test_speakers_of_trials():
    trials = Trials(["a-1", "b-1"], ["a-2", "a-1"], np.array([True, False]))
    utt2spk = {"a-1": "a", "a-2": "a", "b-1": "b"}
    assert trial_speakers(trials, utt2spk) == (["a", "b"], ["a", "a"])
    del utt2spk["b-1"]
    with pytest.raises(UserError, match=r"1 of 3 utterances of the trials are not in utt2spk \(the first is 'b-1'\)"):
        trial_speakers(trials, utt2spk)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resamples": 1}, "resamples is 1"),
        ({"confidence": 95}, "confidence is 95"),
        ({"confidence": 0.0}, "confidence is 0.0"),
        ({"test_speakers": ["a", "b"]}, "3 enrolment and 2 test speakers for 3 trials"),
        ({"test_speakers": ["a", "a", "b"]}, r"labels of 1 trials .*trial 1, .* a target trial of 'b' and 'a'"),
        ({"test_speakers": ["a", "b", "a"]}, r"trial 2, .* a non-target trial of 'a' and 'a'"),
        ({"scores": [0.9, np.nan, 0.1]}, "1 of 3 scores are not finite"),
        ({"target": [True, True, True]}, "0 non-target"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(UserError, match=message):
        bootstrap_interval(**{**GOOD, **change})
