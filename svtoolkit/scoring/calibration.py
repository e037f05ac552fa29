"""From scores to log-likelihood ratios: an affine map, what they cost, and the part that no map can remove.

N. Brümmer and J. du Preez, "Application-independent evaluation of speaker detection", Computer Speech & Language
20 (2006) 230-275. Both costs are in bits: 0 is perfect, 1 is what a detector earns that always says "no idea".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import expit

from svtoolkit.errors import UserError
from svtoolkit.scoring.metrics import RankedScores, check_scores

STEPS = 100
"""Newton steps at most; five to ten are usual."""


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
    targets = int(target.sum())
    weight = np.where(target, 0.5 / targets, 0.5 / (len(scores) - targets))
    wanted = np.where(target, (targets + 1) / (targets + 2), 1 / (len(scores) - targets + 2))
    columns = np.stack([(scores - centre) / spread, np.ones_like(scores)])
    parameters = np.zeros(2)
    for _ in range(STEPS):
        share = expit(parameters @ columns)
        gradient = columns @ (weight * (share - wanted))
        hessian = (columns * (weight * share * (1 - share))) @ columns.T
        step = np.linalg.solve(hessian + 1e-9 * np.eye(2), gradient)
        step *= min(1.0, 2.0 / np.abs(step).max()) if step.any() else 1.0
        parameters -= step
        if np.abs(step).max() < 1e-10:
            break
    scale = parameters[0] / spread
    return Calibration(float(scale), float(parameters[1] - scale * centre))


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
    targets, nontargets = np.diff(ranked.targets_below), np.diff(ranked.nontargets_below)
    trials = targets + nontargets
    posterior = np.clip(isotonic_regression(targets / trials, weights=trials).x, 0.0, 1.0)
    # posterior odds = prior odds * likelihood ratio; a level without targets is never divided by, nor one without
    # non-targets, so the infinite ratios at both ends need no special case.
    prior_odds = ranked.targets / ranked.nontargets
    with_targets, with_nontargets = targets > 0, nontargets > 0
    share = posterior[with_targets]
    bits_targets = np.log2(1 + prior_odds * (1 - share) / share) @ targets[with_targets] / ranked.targets
    share = posterior[with_nontargets]
    bits_nontargets = np.log2(1 + share / (1 - share) / prior_odds) @ nontargets[with_nontargets]
    return float(bits_targets + bits_nontargets / ranked.nontargets) / 2
