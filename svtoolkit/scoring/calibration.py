"""From scores to log-likelihood ratios: an affine map, what they cost, and the part that no map can remove.

N. Brümmer and J. du Preez, "Application-independent evaluation of speaker detection", Computer Speech & Language
20 (2006) 230-275. Both costs are in bits: 0 is perfect, 1 is what a detector earns that always says "no idea".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.scoring.metrics import RankedScores, check_scores

STEPS = 100
"""Newton steps at most; five to ten are usual."""

EVERY = 32
"""Of long lists one trial in so many is fitted first."""


@dataclass(frozen=True)
class Calibration:
    """llr = scale * score + offset: the natural logarithm of the likelihood ratio that a score stands for."""

    scale: float
    offset: float

    def llr(self, score: float) -> float:
        """How many times likelier the score is for one speaker than for two, as a natural logarithm."""
        return self.scale * score + self.offset


def fit_calibration(scores: np.ndarray, target: np.ndarray) -> Calibration:
    """The affine map of least Cllr: logistic regression with both classes of equal weight (Brümmer, section 6).

    As in J. Platt, "Probabilistic outputs for support vector machines", 1999, the classes are (n + 1) / (n + 2) and
    1 / (n + 2) instead of 1 and 0, without which classes that do not overlap would have an infinite scale.

    Args:
        scores: higher means rather the same speaker; shape (trials,).
        target: true for target trials; shape (trials,).

    Raises:
        UserError: different lengths, scores that are not finite numbers, a class without trials, scores all equal.
    """
    scores, target = check_scores(scores, target)
    centre, spread = scores.mean(), scores.std()
    if spread == 0:
        raise UserError(f"all {len(scores)} scores are {scores[0]:g}; expected different ones; look at the model")
    [weight], offset = fit_logistic(((scores - centre) / spread)[:, None], target)
    scale = weight / spread
    return Calibration(float(scale), float(offset - scale * centre))


def fit_logistic(
    features: np.ndarray, target: np.ndarray, *, p_target: float = 0.5, l2: float = 0.0
) -> tuple[np.ndarray, float]:
    """The affine map of features to a log-likelihood ratio whose prior-weighted cross-entropy is least.

    It is the mean of log(1 + exp(-llr - prior)) over targets times ``p_target``, and of log(1 + exp(llr + prior)) over
    non-targets times the rest, with prior = log(p_target / (1 - p_target)): at one half, Cllr (Brümmer, section 6).
    The classes are Platt's, as in :func:`fit_calibration`.

    Args:
        features: of about unit scale, shape (trials, features).
        target: true for target trials, of which there are some, as of the others; shape (trials,).
        p_target: share of target trials that the map is best for, between 0 and 1.
        l2: half of it times the squared weights is added to the cost.

    Returns:
        weights, shape (features,), and the offset.
    """
    targets = int(target.sum())
    weight = np.where(target, p_target / targets, (1 - p_target) / (len(target) - targets))
    wanted = np.where(target, (targets + 1) / (targets + 2), 1 / (len(target) - targets + 2))
    prior = np.log(p_target / (1 - p_target))
    parameters = np.zeros(features.shape[1] + 1)
    if len(target) > EVERY**3:  # begin with a part of each class: most of the steps are taken there
        part = np.concatenate([np.flatnonzero(target)[::EVERY], np.flatnonzero(~target)[::EVERY]])
        parameters = _descend(parameters, features[part], weight[part], wanted[part], prior, l2)
    parameters = _descend(parameters, features, weight, wanted, prior, l2)
    return parameters[:-1], float(parameters[-1])


def _descend(
    parameters: np.ndarray, features: np.ndarray, weight: np.ndarray, wanted: np.ndarray, prior: float, l2: float
) -> np.ndarray:
    """Newton's steps to the weights and offset, (features + 1,), of the logistic curve nearest to what is wanted."""
    shrink = np.append(np.full(features.shape[1], l2), 0.0)
    for _ in range(STEPS):
        with np.errstate(over="ignore"):  # of an infinite number the reciprocal is right
            share = 1 / (1 + np.exp(-(features @ parameters[:-1] + (parameters[-1] + prior))))
        slopes = weight * (share - wanted)
        gradient = np.append(slopes @ features, slopes.sum()) + shrink * parameters
        curves = weight * (share * (1 - share))
        weighted = curves[:, None] * features
        mixed = weighted.sum(axis=0)[:, None]
        hessian = np.block([[weighted.T @ features, mixed], [mixed.T, curves.sum()]]) + np.diag(shrink)
        step = np.linalg.solve(hessian + 1e-9 * np.eye(len(parameters)), gradient)
        step *= min(1.0, 2.0 / np.abs(step).max()) if step.any() else 1.0
        parameters = parameters - step
        if np.abs(step).max() < 1e-10:
            break
    return parameters


def cllr(llr: np.ndarray, target: np.ndarray) -> float:
    """Cost of log-likelihood ratios: both the ranking and the scale of the scores count.

    Cllr = 1/2 mean over targets of log2(1 + exp(-llr)) + 1/2 mean over non-targets of log2(1 + exp(llr)).

    Args:
        llr: natural logarithms of likelihood ratios, shape (trials,); infinite values are allowed, and a wrong
            one costs infinitely much.
        target: true for target trials; shape (trials,).

    Raises:
        UserError: different lengths, NaN, a class without trials.
    """
    llr, target = check_scores(llr, target, finite=False)
    bits_targets = np.logaddexp(0.0, -llr[target]).mean() / np.log(2)
    bits_nontargets = np.logaddexp(0.0, llr[~target]).mean() / np.log(2)
    return float(bits_targets + bits_nontargets) / 2


def min_cllr(scores: np.ndarray, target: np.ndarray) -> float:
    """The least Cllr that a non-decreasing map of the scores can reach: what discrimination alone costs.

    The best map is found by pool-adjacent-violators; it takes equal scores to equal ratios. Perfectly separated
    scores cost 0 (their best ratios are infinite and right), useless ones 1.

    Args:
        scores: higher means rather the same speaker; shape (trials,).
        target: true for target trials; shape (trials,).

    Raises:
        UserError: different lengths, scores that are not finite numbers, a class without trials.
    """
    return min_cllr_from_ranks(RankedScores.rank(scores, target))


def min_cllr_from_ranks(ranked: RankedScores) -> float:
    """As :func:`min_cllr`, of scores that are sorted already."""
    targets, trials = _pool(np.diff(ranked.targets_below), np.diff(ranked.targets_below + ranked.nontargets_below))
    nontargets = trials - targets
    # posterior odds = prior odds * likelihood ratio; a level without targets is never divided by, nor one without
    # non-targets, so the infinite ratios at both ends need no special case.
    prior_odds = ranked.targets / ranked.nontargets
    some = targets > 0
    bits_targets = np.log2(1 + prior_odds * (nontargets[some] / targets[some])) @ targets[some] / ranked.targets
    some = nontargets > 0
    bits_nontargets = np.log2(1 + targets[some] / nontargets[some] / prior_odds) @ nontargets[some] / ranked.nontargets
    return float(bits_targets + bits_nontargets) / 2


def _pool(targets: np.ndarray, trials: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Adjacent levels pooled until the share of targets rises from each to the next: the isotonic regression.

    All that does not rise is pooled at once, as long as that leaves markedly fewer levels; the rest one by one. Shares
    are compared as products of integers, exactly.

    Args:
        targets, trials: how many there are at each level, int64, shape (levels,).

    Returns:
        the same of the pooled levels.
    """
    while True:
        rises = np.append(True, targets[:-1] * trials[1:] < targets[1:] * trials[:-1])
        begins = np.flatnonzero(rises)
        if len(begins) > 0.9 * len(targets):
            break
        targets, trials = np.add.reduceat(targets, begins), np.add.reduceat(trials, begins)
    pooled: list[tuple[int, int]] = []
    for hits, size in zip(targets.tolist(), trials.tolist(), strict=True):
        while pooled and pooled[-1][0] * size >= hits * pooled[-1][1]:
            before = pooled.pop()
            hits, size = hits + before[0], size + before[1]
        pooled.append((hits, size))
    columns = np.array(pooled, dtype=np.int64)
    return columns[:, 0], columns[:, 1]
