"""Error rates of speakers drawn again and again, of lists of millions of trials.

A metric looks at a small part of the thresholds: the equal error rate where misses and false alarms cross, the
detection cost where it is least. So only the trials whose scores lie in a window around these are weighted one by one;
those below and above are counted by speaker and by pair of speakers. Nothing is approximated: a point at either end
of the window stands for all beyond it, at least as good as any of them, and where a metric prefers such a point, or is
decided at the edge, all trials are weighted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from svtoolkit.scoring.metrics import ErrorRates, RankedScores

Metric = Callable[[ErrorRates], tuple[float, float]]
"""Error rates -> (value, threshold): :func:`~svtoolkit.scoring.metrics.eer_from_rates`, or
``functools.partial(min_dcf_from_rates, p_target=0.05)``."""

SMALL = 20_000
"""Trials up to which a window would save nothing."""

WIDENING = 4
"""How many times the error rates of the list itself may be drawn before the window is left, and it is made wider."""


class SpeakerTrials(NamedTuple):
    """Who speaks in the trials of a list.

    Attributes:
        enrol, test: numbers of the speakers, from 0, shape (trials,).
        target: bool, shape (trials,).
        speakers: how many there are.
    """

    enrol: np.ndarray
    test: np.ndarray
    target: np.ndarray
    speakers: int

    def by_speaker(self, chosen: np.ndarray) -> Counts:
        """The trials where ``chosen``, shape (trials,), is true, by their speakers."""
        targets, nontargets = chosen & self.target, chosen & ~self.target
        ones = np.ones(np.count_nonzero(nontargets), dtype=np.int64)
        pairs = coo_array((ones, (self.enrol[nontargets], self.test[nontargets])), shape=2 * (self.speakers,))
        return Counts(np.bincount(self.enrol[targets], minlength=self.speakers), pairs.tocsr())


class Counts(NamedTuple):
    """Numbers of trials: target trials of each speaker, non-target trials of each pair."""

    targets: np.ndarray
    nontargets: csr_array

    def weigh(self, drawn: np.ndarray) -> tuple[int, int]:
        """How many target and non-target trials speakers make that were drawn so many times, shape (speakers,)."""
        return int(self.targets @ drawn), int(drawn @ (self.nontargets @ drawn))


@dataclass(frozen=True)
class _Window:
    """The trials whose scores are at least ``low`` and below ``high``, in the order of their scores.

    Attributes:
        thresholds: their distinct scores, ascending, then ``high``.
        targets: speakers of the target trials.
        first, second: speakers of the non-target trials.
        targets_below, nontargets_below: how many of them are below each threshold.
        below, above: the trials outside.
    """

    low: float
    high: float
    thresholds: np.ndarray
    targets: np.ndarray
    first: np.ndarray
    second: np.ndarray
    targets_below: np.ndarray
    nontargets_below: np.ndarray
    below: Counts
    above: Counts

    @classmethod
    def cut(cls, scores: np.ndarray, trials: SpeakerTrials, low: float, high: float) -> _Window:
        inside = np.flatnonzero((scores >= low) & (scores < high))
        inside = inside[np.argsort(scores[inside])]
        targets, nontargets = inside[trials.target[inside]], inside[~trials.target[inside]]
        distinct = np.unique(scores[inside])
        return cls(
            low, high, np.append(distinct, high),
            trials.enrol[targets], trials.enrol[nontargets], trials.test[nontargets],
            np.append(np.searchsorted(scores[targets], distinct), len(targets)),
            np.append(np.searchsorted(scores[nontargets], distinct), len(nontargets)),
            trials.by_speaker(scores < low), trials.by_speaker(scores >= high),
        )  # fmt: skip

    def rates(self, drawn: np.ndarray, targets: int, nontargets: int) -> ErrorRates:
        """Where speakers were drawn so many times, shape (speakers,), and make so many trials in all.

        Where the window does not begin with the lowest score, a point before its own rejects no target trial; where it
        does not end with the highest, one behind accepts no non-target trial.
        """
        missed = self.below.weigh(drawn)[0] + _sum_first(drawn[self.targets])[self.targets_below]
        weights = _sum_first(drawn[self.first] * drawn[self.second])
        accepted = self.above.weigh(drawn)[1] + weights[-1] - weights[self.nontargets_below]
        thresholds, p_miss, p_fa = self.thresholds, missed / targets, accepted / nontargets
        if np.isfinite(self.low):
            thresholds, p_miss, p_fa = np.append(-np.inf, thresholds), np.append(0, p_miss), np.append(p_fa[0], p_fa)
        if np.isfinite(self.high):
            thresholds, p_miss, p_fa = np.append(thresholds, np.inf), np.append(p_miss, p_miss[-1]), np.append(p_fa, 0)
        return ErrorRates(thresholds, p_miss, p_fa)

    def decides(self, threshold: float) -> bool:
        """Whether a metric that chose this threshold would choose it of all."""
        return (self.low == -np.inf or threshold > self.thresholds[0]) and (
            self.high == np.inf or threshold < self.thresholds[-1]
        )


class ResampledMetrics:
    """Metrics of one system under draws of the speakers.

    Args:
        scores: float64, shape (trials,).
        trials: their speakers.
        metrics: of the error rates.
    """

    def __init__(self, scores: np.ndarray, trials: SpeakerTrials, metrics: Sequence[Metric]) -> None:
        self._scores, self._trials, self._metrics = scores, trials, metrics
        self._widening = float(WIDENING)
        self._lock = threading.Lock()
        self._all: _Window | None = None
        self._window = self._cut()

    def __call__(self, drawn: np.ndarray, targets: int, nontargets: int) -> list[float]:
        """The values where speakers were drawn so many times and make so many trials of both kinds."""
        window = self._window
        found = self._measure(window.rates(drawn, targets, nontargets))
        if not all(window.decides(threshold) for _, threshold in found):
            with self._lock:
                if self._window is window:
                    self._widening *= WIDENING
                    self._window = self._cut()
                self._all = self._all or self._window_of_all()
            found = self._measure(self._all.rates(drawn, targets, nontargets))
        return [value for value, _ in found]

    def _measure(self, rates: ErrorRates) -> list[tuple[float, float]]:
        return [metric(rates) for metric in self._metrics]

    def _cut(self) -> _Window:
        if len(self._scores) <= SMALL:
            return self._window_of_all()
        ranked = RankedScores.rank(self._scores, self._trials.target)
        rates = ranked.error_rates()
        rows = [int(np.searchsorted(rates.thresholds, metric(rates)[1])) for metric in self._metrics]
        most_fa = self._widening * (rates.p_fa[rows].max() + 10 / ranked.nontargets)
        most_miss = self._widening * (rates.p_miss[rows].max() + 10 / ranked.targets)
        begin = int(np.searchsorted(-rates.p_fa, -most_fa, side="right")) - 1 if most_fa < 1 else 0
        end = int(np.searchsorted(rates.p_miss, most_miss)) if most_miss < 1 else len(rates.thresholds)
        low = rates.thresholds[begin] if begin > 0 else -np.inf
        high = rates.thresholds[end] if end < len(rates.thresholds) else np.inf
        return _Window.cut(self._scores, self._trials, low, high)

    def _window_of_all(self) -> _Window:
        return _Window.cut(self._scores, self._trials, -np.inf, np.inf)


def _sum_first(weights: np.ndarray) -> np.ndarray:
    """Sums of the first k weights for k = 0 ... n."""
    sums = np.zeros(len(weights) + 1, dtype=np.int64)
    np.cumsum(weights, out=sums[1:])
    return sums
