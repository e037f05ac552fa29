"""Which of several systems is better, from their scores of the same trials.

Two systems meet the same speakers: where one finds a speaker hard, so mostly does the other. So the difference of their
error rates is known better than either rate, and intervals of the rates that overlap do not say that the systems cannot
be told apart. In each resample the speakers are drawn once, for all systems (:mod:`svtoolkit.scoring.bootstrap`), and
the differences of that resample are kept: the paired bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap,
1993, chapters 8 and 16; over subjects, for recognition systems, M. Bisani and H. Ney, "Bootstrap estimates for
confidence intervals in ASR performance evaluation", ICASSP 2004).

The p-value of a pair is twice the share of resamples on the rarer side of no difference, those of no difference on
both, the observed trials counted as one more resample (A. C. Davison and D. V. Hinkley, Bootstrap Methods and their
Application, 1997, equation 4.11): the smallest level at which the percentile interval leaves out 0.

Of m pairs that are all alike, one in twenty would still differ at a level of 5 %. Holm's step-down procedure
(S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979) 65-70)
keeps the chance of any such mistake among all pairs below the level: the k-th smallest p-value is held against
level / (m - k + 1), and from the first that is larger no pair is told apart. The interval of a pair is that of the
level that its p-value was held against, of the pairs not told apart that of the step where the procedure stopped: so it
leaves out 0 exactly where the pair is told apart.

Where systems differ trial by trial and not speaker by speaker, all this is cautious: a non-target trial counts as the
product of two draws, which doubles the deviation of what is a single trial's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.scoring.bootstrap import Interval, Metric, check_confidence, resample_metrics
from svtoolkit.scoring.metrics import error_rates


@dataclass(frozen=True)
class Comparison:
    """Two systems by one metric, of which less is better.

    Attributes:
        first, second: numbers of the systems, from 0.
        difference: metric of the first less that of the second, in the unit of the metric.
        interval: of the difference, over resampled speakers.
        confidence: of the interval; that of Holm's step, so not less than the one asked for.
        p_value: two-sided, of this pair by itself.
        p_holm: the same, corrected for the number of pairs: the pair is told apart at any level not below it.
        better: number of the system that is better; None where they cannot be told apart.
    """

    first: int
    second: int
    difference: float
    interval: Interval
    confidence: float
    p_value: float
    p_holm: float
    better: int | None


def compare_systems(
    systems: Sequence[np.ndarray],
    enrol_speakers: Sequence[str],
    test_speakers: Sequence[str],
    target: np.ndarray,
    metrics: Sequence[Metric],
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[list[Comparison]]:
    """Every pair of systems, by each metric; Holm's correction is over the pairs of one metric.

    Args:
        systems: two or more: scores of each, shape (trials,).
        enrol_speakers, test_speakers: speakers of each trial, see
            :func:`~svtoolkit.scoring.bootstrap.trial_speakers`.
        target: true where both are the same; shape (trials,).
        metrics: of the error rates, less is better.
        resamples: how often the speakers are drawn; see :func:`enough_resamples`.
        confidence: one less the chance that any two systems of equal quality are told apart.
        seed: the same seed gives the same result.

    Returns:
        for each metric the comparisons, in the order (0, 1), (0, 2), ..., (1, 2), ...

    Raises:
        UserError: fewer than two systems, too few resamples, and what
            :func:`~svtoolkit.scoring.bootstrap.bootstrap_interval` refuses.
    """
    if len(systems) < 2:
        raise UserError(f"found {len(systems)} system to compare; expected two or more with scores of the same trials")
    check_confidence(confidence)
    least = enough_resamples(len(systems), confidence)
    if resamples < least:
        raise UserError(
            f"resamples is {resamples}; expected {least} or more to compare {len(systems)} systems with a confidence "
            f"of {confidence:g}"
        )
    sides = enrol_speakers, test_speakers
    values = resample_metrics(systems, *sides, target, metrics, resamples=resamples, seed=seed)
    rates = [error_rates(scores, target) for scores in systems]
    measured = np.array([[metric(of_system)[0] for metric in metrics] for of_system in rates])
    return [_judge(measured[:, place], values[:, :, place], 1 - confidence) for place in range(len(metrics))]


def enough_resamples(systems: int, confidence: float) -> int:
    """The least number with which each pair can be told apart: the smallest p-value is half of Holm's first level."""
    return math.ceil(4 * math.comb(systems, 2) / (1 - confidence) - 1e-6)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm's procedure, in their own order."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    return [float(value) for value in corrected]


def _judge(measured: np.ndarray, values: np.ndarray, level: float) -> list[Comparison]:
    """The pairs by one metric.

    Args:
        measured: shape (systems,).
        values: the resampled ones, shape (resamples, systems).
    """
    pairs = list(itertools.combinations(range(len(measured)), 2))
    drawn = [np.sort(values[:, first] - values[:, second]) for first, second in pairs]
    tails = np.array([1 + min(np.count_nonzero(d <= 0), np.count_nonzero(d >= 0)) for d in drawn])
    p_values = [min(1.0, 2 * float(tail) / (len(values) + 1)) for tail in tails]
    corrected = holm(p_values)
    found: dict[int, Comparison] = {}
    stopped_at: float | None = None
    for step, place in enumerate(np.argsort(tails, kind="stable").tolist()):
        held_against = stopped_at if stopped_at is not None else level / (len(pairs) - step)
        # How many of the resampled differences lie beyond either bound, itself counted.
        beyond = int(held_against * (len(values) + 1) / 2 + 1e-9)
        if tails[place] > beyond:
            stopped_at = held_against
        first, second = pairs[place]
        interval = Interval(float(drawn[place][beyond - 1]), float(drawn[place][-beyond]))
        told_apart = stopped_at is None
        found[place] = Comparison(
            first=first,
            second=second,
            difference=float(measured[first] - measured[second]),
            interval=interval,
            confidence=1 - held_against,
            p_value=p_values[place],
            p_holm=corrected[place],
            better=(first if interval.high < 0 else second) if told_apart else None,
        )
    return [found[place] for place in range(len(pairs))]
