"""Cllr against its formula, minCllr against scikit-learn's isotonic fit and against every monotone map tried."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from svtoolkit.errors import UserError
from svtoolkit.scoring.calibration import Calibration, cllr, fit_calibration, min_cllr


@st.composite
def scored_trials(draw):
    count = draw(st.integers(2, 30))
    scores = draw(st.lists(st.integers(-6, 6).map(float), min_size=count, max_size=count))
    target = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    target[0], target[1] = True, False
    return np.array(scores), np.array(target)


@settings(deadline=None)
@given(scored_trials())
def test_cllr_is_its_formula(trials):
    llr, target = trials
    targets = [math.log2(1 + math.exp(-value)) for value, same in zip(llr, target, strict=True) if same]
    others = [math.log2(1 + math.exp(value)) for value, same in zip(llr, target, strict=True) if not same]
    assert cllr(llr, target) == pytest.approx((math.fsum(targets) / len(targets) + math.fsum(others) / len(others)) / 2)


@settings(deadline=None)
@given(scored_trials())
def test_min_cllr_is_the_cllr_of_the_isotonic_ratios(trials):
    scores, target = trials
    prior = target.mean()
    posterior = IsotonicRegression().fit(scores, target.astype(float)).predict(scores)
    with np.errstate(divide="ignore"):
        llr = np.log(posterior) - np.log1p(-posterior) - math.log(prior / (1 - prior))
    assert min_cllr(scores, target) == pytest.approx(cllr(llr, target), abs=1e-9)


@settings(deadline=None)
@given(
    scored_trials(),
    st.lists(st.floats(0, 4), min_size=13, max_size=13),
    st.floats(-12, 12),
)
def test_no_monotone_map_costs_less_than_min_cllr(trials, steps, start):
    scores, target = trials
    mapped = start + np.cumsum(steps)
    assert min_cllr(scores, target) <= cllr(mapped[scores.astype(int) + 6], target) + 1e-12


@settings(deadline=None)
@given(scored_trials(), st.sampled_from([np.exp, np.arctan, lambda value: 3 * value - 7, lambda value: value**3]))
def test_min_cllr_sees_the_order_alone(trials, increasing):
    scores, target = trials
    assert min_cllr(increasing(scores), target) == pytest.approx(min_cllr(scores, target), abs=1e-12)
    assert 0 <= min_cllr(scores, target) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("scores", "target", "cost"),
    [
        ([1, 2, 3, 4], [0, 0, 1, 1], 0.0),
        ([4, 3, 2, 1], [0, 0, 1, 1], 1.0),
        ([7, 7, 7, 7, 7], [0, 1, 1, 0, 1], 1.0),
        ([1, 2], [0, 1], 0.0),
        # Pools 0 | 1 0 | 1: half of each class is certain, the other half has ratio 1 and costs 1 bit.
        ([1, 2, 3, 4], [0, 1, 0, 1], 0.5),
    ],
)
def test_known_costs(scores, target, cost):
    assert min_cllr(np.array(scores), np.array(target)) == pytest.approx(cost, abs=1e-12)


def test_no_idea_costs_one_bit():
    assert cllr(np.zeros(7), np.arange(7) < 3) == pytest.approx(1.0)


def test_infinite_ratios_are_free_when_right_and_ruinous_when_wrong():
    target = np.array([True, False])
    assert cllr(np.array([np.inf, -np.inf]), target) == 0.0
    assert cllr(np.array([-np.inf, -np.inf]), target) == np.inf


def test_large_ratios_do_not_overflow():
    assert cllr(np.array([-2000.0, -2000.0]), np.array([True, False])) == pytest.approx(1000 / math.log(2))


def test_calibrated_gaussian_scores_are_close_to_their_minimum():
    # Targets N(d/2, d), non-targets N(-d/2, d): the log-likelihood ratio of such a score is the score itself.
    rng = np.random.default_rng(0)
    d = 6.0
    llr = np.concatenate([rng.normal(d / 2, d**0.5, 20_000), rng.normal(-d / 2, d**0.5, 20_000)])
    target = np.arange(40_000) < 20_000
    assert 0 <= cllr(llr, target) - min_cllr(llr, target) < 0.005
    assert cllr(3 * llr, target) > cllr(llr, target) + 0.05


@pytest.mark.parametrize(
    ("function", "scores", "target", "message"),
    [
        (cllr, [0.0, np.nan], [True, False], "1 of 2 scores are not numbers"),
        (min_cllr, [0.0, np.inf], [True, False], "1 of 2 scores are not finite"),
        (cllr, [0.0, 1.0], [True, True], "0 non-target"),
        (min_cllr, [0.0, 1.0], [False, False], "found 0 target"),
        (min_cllr, [0.0], [True, False], r"scores of shape \(1,\)"),
    ],
)
def test_refuses(function, scores, target, message):
    with pytest.raises(UserError, match=message):
        function(np.array(scores), np.array(target))


# ---- the affine map ----


def gaussian_trials(targets: int, nontargets: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two normal distributions of one width, whose log-likelihood ratio is affine in the score."""
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.normal(0.6, 0.1, targets), rng.normal(0.2, 0.1, nontargets)])
    return scores, np.arange(len(scores)) < targets


def test_the_ratio_of_two_normal_distributions_is_found():
    fitted = fit_calibration(*gaussian_trials(20000, 60000))
    # ln N(s; 0.6, 0.1) - ln N(s; 0.2, 0.1) = 40 s - 16
    assert fitted.scale == pytest.approx(40, rel=0.03)
    assert fitted.llr(0.4) == pytest.approx(0, abs=0.1)


def test_no_other_affine_map_costs_less():
    scores, target = gaussian_trials(300, 1000, seed=3)
    scores = np.where(target, scores, scores + 0.15)
    fitted = fit_calibration(scores, target)
    least = cllr(fitted.scale * scores + fitted.offset, target)
    for scale in (0.9, 1.1):
        assert cllr(fitted.scale * scale * scores + fitted.offset, target) > least
    for offset in (-0.3, 0.3):
        assert cllr(fitted.scale * scores + fitted.offset + offset, target) > least
    assert min_cllr(scores, target) < least < cllr(scores, target)


def test_the_weight_of_the_classes_is_equal_whatever_their_numbers():
    scores, target = gaussian_trials(1000, 1000, seed=4)
    many = np.concatenate([scores, np.repeat(scores[~target], 9)])
    fitted = fit_calibration(many, np.concatenate([target, np.zeros(9000, dtype=bool)]))
    assert fitted.llr(0.4) == pytest.approx(fit_calibration(scores, target).llr(0.4), abs=0.2)


def test_classes_that_do_not_overlap_have_a_finite_scale():
    fitted = fit_calibration(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True]))
    assert 0 < fitted.scale < 100
    assert fitted.llr(0.5) == pytest.approx(0, abs=1e-6)
    assert fitted.llr(0.9) < math.log(9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_unit_of_the_scores_does_not_matter(scale):
    scores, target = gaussian_trials(50, 80, seed=5)
    fitted, changed = fit_calibration(scores, target), fit_calibration(scale * scores + 7 * scale, target)
    assert changed.llr(scale * (0.33 + 7)) == pytest.approx(fitted.llr(0.33), rel=1e-5)


def test_scores_that_are_all_equal_cannot_be_calibrated():
    with pytest.raises(UserError, match=r"all 2 scores are 0.5; expected different ones; look at the model"):
        fit_calibration(np.array([0.5, 0.5]), np.array([True, False]))
    assert Calibration(2.0, -1.0).llr(0.75) == 0.5
