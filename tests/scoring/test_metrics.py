"""Error rates against scikit-learn's ROC curve, against a loop over thresholds, and against lists done by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_curve

from svtoolkit.errors import UserError
from svtoolkit.scoring.metrics import (
    equal_error_rate,
    error_rates,
    min_dcf,
    min_dcf_from_rates,
)


@st.composite
def scored_trials(draw, max_trials=40):
    """Scores and labels, often tied, both classes present."""
    targets = draw(st.integers(1, max_trials // 2))
    nontargets = draw(st.integers(1, max_trials // 2))
    count = targets + nontargets
    coarse = st.integers(-3, 3).map(lambda level: level / 4)
    fine = st.floats(-10, 10, allow_nan=False)
    scores = draw(st.lists(draw(st.sampled_from([coarse, fine])), min_size=count, max_size=count))
    labels = draw(st.permutations([True] * targets + [False] * nontargets))
    return np.array(scores), np.array(labels)


def crossing_by_loop(scores, target):
    """The equal error rate from its definition: walk the curve, cut the segment that crosses p_miss = p_fa."""
    points = []
    for threshold in [*sorted(set(scores.tolist())), np.inf]:
        accepted = scores >= threshold
        points.append((np.mean(~accepted[target]), np.mean(accepted[~target])))
    for (miss, fa), (next_miss, next_fa) in itertools.pairwise(points):
        if miss <= fa and next_miss >= next_fa:
            share = (fa - miss) / ((fa - miss) + (next_miss - next_fa))
            return miss + share * (next_miss - miss)
    raise AssertionError("the curve must cross")


@settings(deadline=None)
@given(scored_trials())
def test_rates_are_those_of_scikit_learn(trials):
    scores, target = trials
    p_fa, p_hit, thresholds = roc_curve(target, scores, drop_intermediate=False)
    rates = error_rates(scores, target)
    np.testing.assert_array_equal(rates.thresholds, thresholds[::-1])
    np.testing.assert_allclose(rates.p_miss, 1 - p_hit[::-1], atol=1e-15)
    np.testing.assert_array_equal(rates.p_fa, p_fa[::-1])


@settings(deadline=None)
@given(scored_trials())
def test_equal_error_rate_is_the_crossing(trials):
    scores, target = trials
    rate, threshold = equal_error_rate(scores, target)
    assert rate == pytest.approx(crossing_by_loop(scores, target), abs=1e-12)
    accepted = scores >= threshold
    gap = abs(np.mean(~accepted[target]) - np.mean(accepted[~target]))
    rates = error_rates(scores, target)
    assert threshold in scores
    assert gap == pytest.approx(np.abs(rates.p_miss - rates.p_fa).min(), abs=1e-12)


@settings(deadline=None)
@given(scored_trials(), st.sampled_from([0.001, 0.01, 0.05, 0.5, 0.9]))
def test_min_dcf_is_the_least_cost_of_any_threshold(trials, p_target):
    scores, target = trials
    cost, threshold = min_dcf(scores, target, p_target)

    def cost_at(value):
        accepted = scores >= value
        weighted = p_target * np.mean(~accepted[target]) + (1 - p_target) * np.mean(accepted[~target])
        return weighted / min(p_target, 1 - p_target)

    tried = [cost_at(value) for value in [*scores, np.inf]]
    assert cost == pytest.approx(min(tried), abs=1e-12)
    assert cost == pytest.approx(cost_at(threshold), abs=1e-12)
    assert 0 <= cost <= 1 + 1e-12


@pytest.mark.parametrize(
    ("name", "scores", "target", "rate", "threshold", "cost"),
    [
        ("perfect", [1, 2, 3, 4], [0, 0, 1, 1], 0.0, 3, 0.0),
        ("reversed", [1, 2, 3, 4], [1, 1, 0, 0], 1.0, 3, 1.0),
        ("all tied", [5, 5, 5, 5], [0, 1, 0, 1], 0.5, 5, 1.0),
        ("one trial each, right", [0, 1], [0, 1], 0.0, 1, 0.0),
        ("one trial each, wrong", [0, 1], [1, 0], 1.0, 1, 1.0),
        ("interleaved", [1, 2, 3, 4], [0, 1, 0, 1], 0.5, 3, 0.5),
        # At 2: misses 0/2, false alarms 2/3; at 3: 1/2 and 1/3. The line between them crosses at 0.4.
        ("between points", [1, 2, 2, 3, 4], [0, 1, 0, 0, 1], 0.4, 3, 0.5),
        # At 2 (three tied): misses 0/2, false alarms 1/2; at 3: 1/2 and 0/2. Crossing at 1/4, both equally near.
        ("tie across classes", [1, 2, 2, 3], [0, 1, 0, 1], 0.25, 2, 0.5),
    ],
)
def test_lists_done_by_hand(name, scores, target, rate, threshold, cost):
    scores, target = np.array(scores), np.array(target)
    assert equal_error_rate(scores, target) == pytest.approx((rate, threshold)), name
    assert min_dcf(scores, target)[0] == pytest.approx(cost), name


def test_rejecting_everything_is_an_answer():
    assert min_dcf(np.array([0.0, 1.0]), np.array([True, False])) == (1.0, np.inf)


def test_order_of_trials_and_precision_do_not_matter():
    rng = np.random.default_rng(3)
    scores = rng.integers(0, 20, size=500).astype(np.float32)
    target = rng.random(500) < 0.3
    shuffled = rng.permutation(500)
    assert equal_error_rate(scores, target) == equal_error_rate(scores[shuffled], target[shuffled])
    assert equal_error_rate(scores, target) == equal_error_rate(scores.astype(np.float64), target.astype(int))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_gaussian_scores_give_the_rate_of_theory(seed):
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.normal(3, 1, 20_000), rng.normal(0, 1, 20_000)])
    rate, threshold = equal_error_rate(scores, np.arange(40_000) < 20_000)
    assert rate == pytest.approx(0.0668, abs=0.008)  # Phi(-1.5)
    assert threshold == pytest.approx(1.5, abs=0.06)


@pytest.mark.parametrize("function", [error_rates, equal_error_rate, min_dcf])
@pytest.mark.parametrize(
    ("scores", "target", "message"),
    [
        ([0.1, 0.2], [True, True], "found 2 target and 0 non-target trials"),
        ([0.1, 0.2], [False, False], "found 0 target and 2 non-target trials"),
        ([], [], "found 0 target and 0 non-target trials"),
        ([0.1, np.nan, np.inf], [True, False, True], r"2 of 3 scores .* first is nan at trial 1"),
        ([0.1, 0.2, 0.3], [True, False], r"scores of shape \(3,\) and labels of shape \(2,\)"),
        ([[0.1], [0.2]], [[True], [False]], r"scores of shape \(2, 1\)"),
        ([0.1, 0.2], [1, 2], "labels other than 0 and 1"),
    ],
)
def test_refuses(function, scores, target, message):
    with pytest.raises(UserError, match=message):
        function(np.array(scores), np.array(target))


@pytest.mark.parametrize("p_target", [0.0, 1.0])
def test_refuses_a_certain_prior(p_target):
    rates = error_rates(np.array([0.0, 1.0]), np.array([False, True]))
    with pytest.raises(UserError, match=f"p_target is {p_target}"):
        min_dcf_from_rates(rates, p_target=p_target)
