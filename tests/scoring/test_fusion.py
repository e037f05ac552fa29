"""Fusion against scikit-learn and a float64 minimum, its symmetry, and what it makes of synthetic systems."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.calibration import cllr, fit_logistic, min_cllr
from svtoolkit.scoring.fusion import Features, Fusion, check_unheard, fit_fusion, trial_features
from svtoolkit.scoring.metrics import equal_error_rate
from svtoolkit.scoring.quality.table import QualityTable

COUNT = 3000
UTTERANCES = [f"u{number}" for number in range(200)]


def some_trials(count: int = COUNT, seed: int = 0) -> Trials:
    rng = np.random.default_rng(seed)
    enrol, test = rng.choice(UTTERANCES, (2, count)).tolist()
    return Trials(enrol, test, rng.random(count) < 0.3)


def systems(trials: Trials, seed: int = 1) -> list[np.ndarray]:
    """Scores of two systems whose errors are independent, each on a scale of its own."""
    rng = np.random.default_rng(seed)
    first, second = (rng.normal(2.0 * trials.target, 1.0) for _ in range(2))
    return [0.1 * first + 0.4, 7 * second - 30]


def lengths(seed: int = 2) -> QualityTable:
    rng = np.random.default_rng(seed)
    return QualityTable(["log_duration", "magnitude"], UTTERANCES, rng.normal(1.0, 0.5, (200, 2)))


@pytest.mark.parametrize(("p_target", "l2"), [(0.5, 1e-4), (0.05, 1e-2), (0.9, 1e-6)])
def test_the_fit_is_the_minimum_of_its_cost(p_target, l2):
    trials = some_trials()
    features = np.stack([(each - each.mean()) / each.std() for each in systems(trials)], axis=1)
    weights, offset = fit_logistic(features, trials.target, p_target=p_target, l2=l2)
    targets = int(trials.target.sum())
    soft = np.where(trials.target, (targets + 1) / (targets + 2), 1 / (COUNT - targets + 2))
    weight = np.where(trials.target, p_target / targets, (1 - p_target) / (COUNT - targets))

    def cost(parameters):
        logit = features @ parameters[:2] + parameters[2] + np.log(p_target / (1 - p_target))
        losses = soft * np.logaddexp(0, -logit) + (1 - soft) * np.logaddexp(0, logit)
        return weight @ losses + l2 / 2 * (parameters[:2] @ parameters[:2])

    found = minimize(cost, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose([*weights, offset], found.x, rtol=1e-4)
    assert cost(np.array([*weights, offset])) <= found.fun + 1e-12


def test_the_weights_are_those_of_scikit_learn():
    trials = some_trials(20_000)
    features = np.stack([(each - each.mean()) / each.std() for each in systems(trials)], axis=1)
    weights, offset = fit_logistic(features, trials.target, l2=1e-3)
    targets = int(trials.target.sum())
    weight = np.where(trials.target, 0.5 / targets, 0.5 / (20_000 - targets))
    soft = np.where(trials.target, (targets + 1) / (targets + 2), 1 / (20_000 - targets + 2))
    theirs = LogisticRegression(C=1e3, tol=1e-12, max_iter=1000)
    both = np.repeat([True, False], 20_000)  # each trial stands there as both, by halves that are soft
    theirs.fit(np.tile(features, (2, 1)), both, sample_weight=np.concatenate([weight * soft, weight * (1 - soft)]))
    np.testing.assert_allclose(weights, theirs.coef_[0], rtol=1e-5)
    assert offset == pytest.approx(theirs.intercept_[0], rel=1e-5)


def test_a_long_list_is_fitted_as_any_other():
    trials = some_trials(70_000)
    features = trial_features(systems(trials), trials)
    fusion = fit_fusion(features, trials.target)
    order = np.random.default_rng(5).permutation(len(trials))
    again = fit_fusion(Features(features.names, features.matrix[order]), trials.target[order])
    assert again.weights == pytest.approx(fusion.weights, rel=1e-6)


def test_fusion_beats_its_systems_and_is_calibrated_on_other_trials():
    train, test = some_trials(seed=0), some_trials(seed=10)
    fusion = fit_fusion(trial_features(systems(train, 1), train), train.target)
    scores = systems(test, 11)
    fused = fusion.llr(trial_features(scores, test))
    eers = [equal_error_rate(each, test.target)[0] for each in scores]
    assert equal_error_rate(fused, test.target)[0] < 0.75 * min(eers)
    assert min_cllr(fused, test.target) <= cllr(fused, test.target) < min_cllr(fused, test.target) + 0.02
    assert cllr(fused, test.target) < min(cllr(each, test.target) for each in scores)
    # Both systems have d' = 2: the log-likelihood ratio is 2 s - 2 of each, in the units that they are drawn in.
    assert [*fusion.weights.values()] == pytest.approx([20, 2 / 7], rel=0.1)


def test_one_system_is_calibrated():
    trials = some_trials()
    score = systems(trials)[0]
    fused = fit_fusion(trial_features([score], trials), trials.target).llr(trial_features([score], trials))
    assert cllr(fused, trials.target) < cllr(score, trials.target) - 0.1
    assert np.array_equal(np.argsort(fused), np.argsort(score))


def test_quality_tells_trials_apart_that_scores_do_not():
    trials, table = some_trials(), lengths()
    # Scores rise with the duration, whoever speaks: the fusion takes the duration away again.
    duration = table.of(trials.names)[:, 0]
    enrol, test = (duration[side] for side in trials.numbered)
    score = systems(trials)[0] + 0.3 * (enrol + test)
    without = fit_fusion(trial_features([score], trials), trials.target)
    with_it = fit_fusion(trial_features([score], trials, table), trials.target)
    costs = [cllr(fusion.llr(trial_features([score], trials, quality)), trials.target)
             for fusion, quality in ((without, None), (with_it, table))]  # fmt: skip
    assert costs[1] < costs[0] - 0.05
    assert with_it.weights["log_duration sum"] == pytest.approx(-0.3 * with_it.weights["score 1"], rel=0.1)
    assert abs(with_it.weights["magnitude sum"]) < 0.3


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_the_sides_and_the_order_of_trials_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    trials, table = some_trials(60, seed), lengths(seed)
    scores = systems(trials, seed)
    fusion = Fusion({name: rng.normal() for name in trial_features(scores, trials, table).names}, 0.3)
    llr = fusion.llr(trial_features(scores, trials, table))
    turned = Trials(trials.test, trials.enrol, trials.target)
    np.testing.assert_allclose(fusion.llr(trial_features(scores, turned, table)), llr, rtol=1e-12)
    order = rng.permutation(60)
    permuted = trial_features([each[order] for each in scores], trials.take(order), table)
    np.testing.assert_allclose(fusion.llr(permuted), llr[order], rtol=1e-12)


def test_features_are_found_by_their_names():
    trials, table = some_trials(), lengths()
    fusion = fit_fusion(trial_features(systems(trials), trials, table), trials.target)
    other = QualityTable(table.measures[::-1], UTTERANCES[::-1], table.values[::-1, ::-1])
    one, two = (fusion.llr(trial_features(systems(trials), trials, each)) for each in (table, other))
    np.testing.assert_allclose(one, two, rtol=1e-12)
    assert Fusion.parse(asdict(fusion)) == fusion


def test_larger_and_smaller_are_in_the_span_of_sum_and_difference():
    trials, table = some_trials(50), lengths()
    matrix = trial_features([], trials, table).matrix
    duration = table.of(trials.names)[:, 0]
    enrol, test = (duration[side] for side in trials.numbered)
    np.testing.assert_allclose((matrix[:, 0] + matrix[:, 1]) / 2, np.maximum(enrol, test))
    np.testing.assert_allclose((matrix[:, 0] - matrix[:, 1]) / 2, np.minimum(enrol, test))


def test_a_measure_that_never_changes_has_no_weight():
    trials = some_trials()
    equal = QualityTable(["log_duration"], UTTERANCES, np.full((200, 1), 1.1))
    fusion = fit_fusion(trial_features(systems(trials), trials, equal), trials.target)
    assert fusion.weights["log_duration sum"] == fusion.weights["log_duration difference"] == 0
    assert fusion.weights["score 1"] > 0


def test_systems_that_are_the_same_share_their_weight():
    trials = some_trials()
    score = systems(trials)[0]
    fusion = fit_fusion(trial_features([score, score], trials), trials.target)
    assert fusion.weights["score 1"] == pytest.approx(fusion.weights["score 2"], rel=1e-6)


@pytest.mark.parametrize(
    ("scores", "target", "message"),
    [
        ([[0.0, np.nan, 1.0]], [True, False, True], "score 1: 1 of 3 scores are not finite"),
        ([[0.0, 0.5, 1.0]], [True, True, True], "0 non-target"),
        ([[0.0, 0.5, 1.0], [2.0, 2.0, 2.0]], [True, False, True], "score 2: all 3 scores are equal"),
    ],
)
def test_refuses_to_train(scores, target, message):
    trials = Trials(["a", "b", "c"], ["d", "e", "f"], np.array(target))
    with pytest.raises(UserError, match=message):
        fit_fusion(trial_features([np.array(each) for each in scores], trials), trials.target)


def test_refuses_other_features_other_speakers_and_missing_quality():
    trials = some_trials()
    fusion = fit_fusion(trial_features(systems(trials), trials), trials.target)
    with pytest.raises(UserError, match="the fusion is of score 1, score 2, but what is given makes score 1; give as"):
        fusion.llr(trial_features(systems(trials)[:1], trials))
    with pytest.raises(UserError, match=r"1 speakers are in the trials that train the fusion .* ann"):
        check_unheard({"ann", "bob"}, {"ann", "cas"})
    check_unheard({"bob"}, {"ann"})
    few = QualityTable(["magnitude"], UTTERANCES[:-1], np.zeros((199, 1)), "q")
    with pytest.raises(UserError, match="q: has no line for 1 of 200 utterances of the trials: u199; measure them"):
        trial_features([], trials, few)


@pytest.mark.parametrize(
    "content",
    [None, [], {}, {"weights": {}, "offset": 0}, {"weights": {"score 1": "x"}, "offset": 0},
     {"weights": {"score 1": float("nan")}, "offset": 0}, {"weights": 3, "offset": 0}],
)  # fmt: skip
def test_what_is_no_fusion(content):
    with pytest.raises(ValueError, match="holds "):
        Fusion.parse(content)
