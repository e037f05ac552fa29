"""Pairs of systems: against a computation of its own in plain float64, and against simulations of known truth."""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction

import numpy as np
import pytest

from svtoolkit.errors import UserError
from svtoolkit.scoring.metrics import eer_from_rates, equal_error_rate, min_dcf_from_rates
from svtoolkit.scoring.paired import compare_systems, enough_resamples, holm


def simulate(distances, *, speakers=12, utterances=3, own=0.5, of_speakers=0.0, seed=0):
    """Scores of systems with these distances of the classes, on all pairs of utterances.

    What is hard in a trial is hard for all systems; ``own``: deviation of what each adds for itself, trial by trial;
    ``of_speakers``: deviation of what a system finds in a speaker.
    """
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(speakers), utterances)
    first, second = (np.array(side) for side in zip(*itertools.combinations(range(len(owner)), 2), strict=True))
    target = owner[first] == owner[second]
    shift = 0.5 * rng.normal(size=speakers)
    shared = shift[owner[first]] + shift[owner[second]] + rng.normal(size=len(target))
    systems = []
    for distance in distances:
        found = of_speakers * rng.normal(size=(2, speakers))
        trials = np.where(target, 2 * found[0][owner[first]], 0) + found[1][owner[first]] + found[1][owner[second]]
        systems.append(shared + distance * target + trials + own * rng.normal(size=len(target)))
    return systems, [f"s{n}" for n in owner[first]], [f"s{n}" for n in owner[second]], target


def plain_eer(scores, labels):
    """Crossing of the two rates over all thresholds, by lists alone."""
    points = [
        (
            sum(s < t for s, same in zip(scores, labels, strict=True) if same) / sum(labels),
            sum(s >= t for s, same in zip(scores, labels, strict=True) if not same) / (len(labels) - sum(labels)),
        )
        for t in [*sorted(set(scores)), float("inf")]
    ]
    for (miss, alarm), (next_miss, next_alarm) in itertools.pairwise(points):
        if next_miss >= next_alarm:
            share = (alarm - miss) / (alarm - miss + next_miss - next_alarm)
            return miss + share * (next_miss - miss)
    raise AssertionError("the rates cross")


def test_differences_are_those_of_copied_trials():
    """Each resample written out: every trial as often as it counts."""
    (one, two), enrol, test, target = simulate((2.0, 3.0), speakers=5, utterances=2)
    names = list(dict.fromkeys([*enrol, *test]))
    rng = np.random.default_rng(3)
    differences = []
    while len(differences) < 99:
        drawn = [names[pick] for pick in rng.integers(len(names), size=len(names))]
        rows = [
            row
            for row, same in enumerate(target)
            for _ in range(drawn.count(enrol[row]) * (1 if same else drawn.count(test[row])))
        ]
        labels = [bool(target[row]) for row in rows]
        if any(labels) and not all(labels):
            differences.append(plain_eer(one[rows].tolist(), labels) - plain_eer(two[rows].tolist(), labels))
    ((found,),) = compare_systems(
        [one, two], enrol, test, target, [eer_from_rates], resamples=99, confidence=0.9, seed=3
    )
    ordered = sorted(differences)
    np.testing.assert_allclose(found.interval, (ordered[4], ordered[94]), atol=1e-12)  # 5 of 100 at either end
    less, more = (sum(sign * d <= 1e-12 for d in differences) for sign in (1, -1))
    assert found.p_value == pytest.approx(min(1, 2 * Fraction(1 + min(less, more), 100)))
    assert found.difference == pytest.approx(plain_eer(one.tolist(), target) - plain_eer(two.tolist(), target))


def test_holm_is_the_procedure_step_by_step():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random(6).round(2) ** 2
        for level in (0.01, 0.05, 0.2, 0.5):
            rejected: set[int] = set()
            for k, place in enumerate(np.argsort(p, kind="stable").tolist(), start=1):
                if p[place] > level / (len(p) - k + 1):
                    break
                rejected.add(place)
            assert {place for place, value in enumerate(holm(list(p))) if value <= level} == rejected
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # by hand
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_known_difference_is_found_and_none_where_there_is_none():
    """The first two systems are alike, the third is better by far; their own noise is small beside the trials'."""
    systems, *sides, target = simulate((2.0, 2.0, 3.0), speakers=40, own=0.3, seed=5)
    by_eer, by_cost = compare_systems(
        systems, *sides, target, [eer_from_rates, functools.partial(min_dcf_from_rates, p_target=0.05)], resamples=300
    )
    assert [(c.first, c.second, c.better) for c in by_eer] == [(0, 1, None), (0, 2, 2), (1, 2, 2)]
    assert [c.better for c in by_cost] == [None, 2, 2]
    assert [round(c.confidence, 4) for c in by_eer] == pytest.approx([0.95, 0.9833, 0.975])
    assert by_eer[1].difference == equal_error_rate(systems[0], target)[0] - equal_error_rate(systems[2], target)[0]


def test_the_interval_leaves_out_zero_where_the_systems_are_told_apart():
    verdicts = set()
    for seed in range(6):
        systems, *sides, target = simulate((2.0, 2.4, 2.8), speakers=20, own=0.3, seed=seed)
        (found,) = compare_systems(systems, *sides, target, [eer_from_rates], resamples=140, confidence=0.9)
        for one in found:
            low, high = one.interval
            assert (one.better is None) == (low <= 0 <= high) == (one.p_holm > 0.1 + 1e-12)
            assert one.confidence >= 0.9 - 1e-12
            assert one.better in (None, one.first if one.difference < 0 else one.second)
            verdicts.add(one.better is None)
    assert verdicts == {True, False}


def test_equal_systems_are_seldom_told_apart():
    """They differ from speaker to speaker, and among all speakers by nothing; at a level of 10 %, 50 times."""
    mistakes = 0
    for seed in range(50):
        systems, *sides, target = simulate((2.0, 2.0), utterances=2, own=0.0, of_speakers=0.7, seed=seed)
        ((one,),) = compare_systems(systems, *sides, target, [eer_from_rates], resamples=60, confidence=0.9, seed=seed)
        mistakes += one.better is not None
    assert 1 <= mistakes <= 11  # of a binomial of 50 and 0.1 more than 11, or none, come once in a hundred


def test_a_system_cannot_be_told_from_itself():
    (one,), *sides, target = simulate((2.0,))
    ((found,),) = compare_systems([one, 3 * one + 1], *sides, target, [eer_from_rates], resamples=80)
    assert (found.difference, found.interval, found.p_value, found.better) == (0.0, (0.0, 0.0), 1.0, None)


def test_pairing_sees_what_separate_intervals_do_not():
    from svtoolkit.scoring.bootstrap import bootstrap_interval

    systems, *sides, target = simulate((2.0, 2.3), speakers=30, own=0.1, seed=1)
    ((found,),) = compare_systems(systems, *sides, target, [eer_from_rates], resamples=200)
    assert found.better == 1
    first, second = (bootstrap_interval(scores, *sides, target, resamples=200) for scores in systems)
    assert first.low < second.high  # they overlap


@pytest.mark.parametrize(
    ("count", "change", "message"),
    [
        (1, {}, "found 1 system to compare"),
        (2, {"confidence": 1.0}, "confidence is 1.0"),
        (3, {"resamples": 100}, "resamples is 100; expected 240 or more to compare 3 systems"),
    ],
)
def test_refuses(count, change, message):
    systems, *sides, target = simulate((2.0,) * count)
    with pytest.raises(UserError, match=message):
        compare_systems(systems, *sides, target, [eer_from_rates], **change)


def test_enough_resamples():
    assert [enough_resamples(systems, 0.95) for systems in (2, 3, 8)] == [80, 240, 2240]
