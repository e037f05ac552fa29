"""Error rates of verification: miss and false-alarm rates, equal error rate, minimum detection cost.

The convention of this module: a trial is accepted when ``score >= threshold``. The miss rate is the share of target
trials with ``score < threshold``, the false-alarm rate the share of non-target trials with ``score >= threshold``.
Trials with equal scores are accepted or rejected together, so the order of a list never changes a result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svtoolkit.errors import UserError


class ErrorRates(NamedTuple):
    """The two error rates at every threshold that matters, thresholds ascending.

    Attributes:
        thresholds: the distinct scores, then +inf, which rejects every trial; shape (distinct scores + 1,).
        p_miss: share of target trials below each threshold, never falling, from 0 to 1.
        p_fa: share of non-target trials at or above each threshold, never rising, from 1 to 0.
    """

    thresholds: np.ndarray
    p_miss: np.ndarray
    p_fa: np.ndarray


class OperatingPoint(NamedTuple):
    """A threshold and the two error rates, shares from 0 to 1, that were counted at it."""

    threshold: float
    p_miss: float
    p_fa: float


@dataclass(frozen=True)
class RankedScores:
    """Scores sorted once, from which every error rate follows.

    Attributes:
        thresholds: the distinct scores, ascending, then +inf.
        targets_below: how many target scores are below each threshold.
        nontargets_below: how many non-target scores are below each threshold.
    """

    thresholds: np.ndarray
    targets_below: np.ndarray
    nontargets_below: np.ndarray

    @classmethod
    def rank(cls, scores: np.ndarray, target: np.ndarray) -> RankedScores:
        """Sort the scores, shape (trials,), of target and non-target trials.

        Raises:
            UserError: different lengths, scores that are not finite numbers, a class without trials.
        """
        scores, target = check_scores(scores, target)
        ascending = np.sort(scores)
        begins = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1]))
        distinct, below = ascending[begins], np.append(begins, len(scores))
        # Only the smaller class is looked up; sorted it is looked up in the order of memory.
        fewer = 2 * np.count_nonzero(target) <= len(target)
        places = np.searchsorted(distinct, np.sort(scores[target == fewer]))
        ours = np.append(0, np.cumsum(np.bincount(places, minlength=len(distinct))))
        targets_below, nontargets_below = (ours, below - ours) if fewer else (below - ours, ours)
        return cls(np.append(distinct, np.inf), targets_below, nontargets_below)

    @property
    def targets(self) -> int:
        return int(self.targets_below[-1])

    @property
    def nontargets(self) -> int:
        return int(self.nontargets_below[-1])

    def error_rates(self) -> ErrorRates:
        p_miss = self.targets_below / self.targets
        p_fa = (self.nontargets - self.nontargets_below) / self.nontargets
        return ErrorRates(self.thresholds, p_miss, p_fa)


def check_scores(scores: np.ndarray, target: np.ndarray, *, finite: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Scores as float64 and labels as bool, both of shape (trials,).

    Args:
        finite: refuse infinite scores too, not only NaN.

    Raises:
        UserError: another shape or another length, labels other than true and false, NaN, a class without trials.
    """
    scores, labels = np.asarray(scores, dtype=np.float64), np.asarray(target)
    if scores.ndim != 1 or scores.shape != labels.shape:
        raise UserError(
            f"found scores of shape {scores.shape} and labels of shape {labels.shape}; "
            "expected one score and one label for each trial"
        )
    if labels.dtype != np.bool_ and not np.isin(labels, (0, 1)).all():
        raise UserError("found labels other than 0 and 1; expected 1 (or True) for target trials, 0 for the others")
    bad = np.flatnonzero(~np.isfinite(scores) if finite else np.isnan(scores))
    if len(bad):
        kind = "finite numbers" if finite else "numbers"
        raise UserError(
            f"{len(bad)} of {len(scores)} scores are not {kind} (the first is {scores[bad[0]]} at trial {bad[0]}, "
            "counted from 0); drop these trials or look for their missing or broken embeddings"
        )
    labels = labels.astype(bool)
    targets = int(labels.sum())
    if targets in (0, len(labels)):
        raise UserError(
            f"found {targets} target and {len(labels) - targets} non-target trials; "
            "error rates need at least one of each"
        )
    return scores, labels


def error_rates(scores: np.ndarray, target: np.ndarray) -> ErrorRates:
    """Miss and false-alarm rates at every distinct score and at +inf.

    Args:
        scores: higher means rather the same speaker; shape (trials,).
        target: true for target trials; shape (trials,).

    Raises:
        UserError: see :func:`check_scores`; the same holds for the functions below.
    """
    return RankedScores.rank(scores, target).error_rates()


def equal_error_rate(scores: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """The equal error rate, a share from 0 to 1, and its threshold; see :func:`eer_from_rates`."""
    return eer_from_rates(error_rates(scores, target))


def eer_from_rates(rates: ErrorRates) -> tuple[float, float]:
    """Where the miss rate equals the false-alarm rate.

    The curve is taken to be straight between neighbouring points (p_fa, p_miss); the rate is that of its crossing
    with p_miss = p_fa. Scores that are all equal give 0.5, perfectly reversed ones 1.

    Returns:
        the rate, and the threshold of that neighbour of the crossing whose two rates differ least (of two the
        lower one): a score at which the rates were really measured, always finite.
    """
    difference = rates.p_miss - rates.p_fa
    above = int(np.searchsorted(difference, 0.0))
    below = above - 1
    share = -difference[below] / (difference[above] - difference[below])
    rate = rates.p_miss[below] + share * (rates.p_miss[above] - rates.p_miss[below])
    nearest = below if -difference[below] <= difference[above] else above
    return float(rate), float(rates.thresholds[nearest])


def min_dcf(scores: np.ndarray, target: np.ndarray, p_target: float = 0.01) -> tuple[float, float]:
    """The normalised minimum detection cost and its threshold; see :func:`min_dcf_from_rates`."""
    return min_dcf_from_rates(error_rates(scores, target), p_target=p_target)


def min_dcf_from_rates(rates: ErrorRates, *, p_target: float = 0.01) -> tuple[float, float]:
    """The least detection cost over all thresholds, divided by that of the better trivial decision.

    C(t) = p_target * p_miss(t) + (1 - p_target) * p_fa(t), divided by min(p_target, 1 - p_target): the normalised cost
    of the NIST evaluations (SRE 2016 plan), where a miss costs as much as a false alarm.

    Returns:
        the cost, from 0 to 1, and the lowest threshold that attains it (+inf where rejecting everything does).

    Raises:
        UserError: p_target outside (0, 1).
    """
    if not 0 < p_target < 1:
        raise UserError(f"p_target is {p_target}; expected a probability between 0 and 1, such as 0.01")
    costs = (p_target * rates.p_miss + (1 - p_target) * rates.p_fa) / min(p_target, 1 - p_target)
    best = int(np.argmin(costs))
    return float(costs[best]), float(rates.thresholds[best])


def act_dcf_from_rates(rates: ErrorRates, *, p_target: float = 0.01) -> float:
    """The normalised detection cost, as that of :func:`min_dcf_from_rates`, of deciding by Bayes' rule.

    Scores are taken as natural logarithms of likelihood ratios: a trial is accepted from log((1 - p_target) / p_target)
    on. What it lies above the minimum is the price of bad calibration.
    """
    point = point_at_threshold(rates, math.log((1 - p_target) / p_target))
    return (p_target * point.p_miss + (1 - p_target) * point.p_fa) / min(p_target, 1 - p_target)


def point_at_threshold(rates: ErrorRates, threshold: float) -> OperatingPoint:
    """The error rates of a threshold, which need not be one of the scores."""
    row = int(np.searchsorted(rates.thresholds, threshold))
    return OperatingPoint(threshold, float(rates.p_miss[row]), float(rates.p_fa[row]))


def point_at_fa_rate(rates: ErrorRates, fa_rate: float, nontargets: int) -> OperatingPoint:
    """The lowest threshold at which no more than a share of the non-target trials is accepted.

    Args:
        fa_rate: the share, above 0 and below 1.
        nontargets: non-target trials that the rates were counted on.

    Raises:
        UserError: fa_rate outside (0, 1), too few trials to count so small a share, the highest scores are those of
            non-target trials.
    """
    if not 0 < fa_rate < 1:
        raise UserError(f"fa_rate is {fa_rate:g}; expected a share between 0 and 1, such as 0.01")
    if fa_rate * nontargets < 1:
        raise UserError(
            f"fa_rate={fa_rate:g} is less than one of the {nontargets} non-target trials; expected a list of "
            f"{round(30 / fa_rate)} or more, or fa_rate={min(0.5, 30 / nontargets):.2g} for this one"
        )
    row = int(np.argmax(rates.p_fa <= fa_rate))
    if np.isinf(rates.thresholds[row]):
        raise UserError(
            f"no threshold has a false-alarm rate of {fa_rate:g} or less: the highest score is that of "
            f"{rates.p_fa[row - 1]:.2%} of the non-target trials; look at the scores, or raise fa_rate"
        )
    return OperatingPoint(*(float(column[row]) for column in rates))
