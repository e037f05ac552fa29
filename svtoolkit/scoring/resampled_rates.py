"""Error rates of speakers drawn again and again, of lists of millions of trials.

A metric looks at a small part of the thresholds: the equal error rate where misses and false alarms cross, the
detection cost where it is least. So only the trials whose scores lie in a window around these are weighted one by one;
those below and above are counted by speaker and by pair of speakers. Within the window the weights are summed by runs
of thresholds, and only the runs that a metric asks about are looked at threshold by threshold.

Nothing is approximated: one point stands for all thresholds within a run, or beyond an end of the window, with the
misses of the lowest and the false alarms of the highest of them, at least as good as any. Where a metric chooses such
a point, or one beside it, the runs around it are opened and the metric asked again; beyond the window, all trials are
weighted.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svtoolkit.scoring.metrics import ErrorRates, RankedScores
from svtoolkit.scoring.speaker_trials import Counts, SpeakerTrials

Metric = Callable[[ErrorRates], tuple[float, float]]
"""Error rates -> (value, threshold): :func:`~svtoolkit.scoring.metrics.eer_from_rates`, or
``functools.partial(min_dcf_from_rates, p_target=0.05)``."""

SMALL = 20_000
"""Trials up to which a window would save nothing."""

RUN = 256
"""Thresholds that are summed together."""

FEW = 4096
"""Thresholds up to which all are looked at."""

RUNS_AT_ONCE = 256
"""Runs whose trials are weighted at a time: their weights stay in cache."""

WIDENING = 4
"""How many times the error rates of the list itself may be drawn before the window is left, and it is made wider."""


class _Points(NamedTuple):
    """Thresholds, ascending, and the trials that each rejects or accepts wrongly.

    Attributes:
        thresholds: shape (points,).
        missed, accepted: target trials below, non-target trials at or above; int64, shape (points,).
        run: that for which the point stands, -1 where it stands for itself; shape (points,).
    """

    thresholds: np.ndarray
    missed: np.ndarray
    accepted: np.ndarray
    run: np.ndarray

    def replace(self, rows: slice, others: _Points) -> _Points:
        """Other points in the place of some."""
        pairs = zip(self, others, strict=True)
        return _Points(*(np.concatenate([mine[: rows.start], its, mine[rows.stop :]]) for mine, its in pairs))


@dataclass(frozen=True)
class _Window:
    """The trials whose scores are at least ``low`` and below ``high``, in the order of their scores.

    Attributes:
        thresholds: their distinct scores, ascending, then ``high``.
        targets: speakers of the target trials.
        first, second: speakers of the non-target trials.
        targets_below, nontargets_below: how many of them are below each threshold.
        begins: of each run of thresholds its first, and the last of all.
        below: the trials with lower scores.
    """

    low: float
    high: float
    thresholds: np.ndarray
    targets: np.ndarray
    first: np.ndarray
    second: np.ndarray
    targets_below: np.ndarray
    nontargets_below: np.ndarray
    begins: np.ndarray
    below: Counts

    @classmethod
    def cut(cls, scores: np.ndarray, trials: SpeakerTrials, low: float, high: float) -> _Window:
        inside = np.flatnonzero((scores >= low) & (scores < high))
        inside = inside[np.argsort(scores[inside])]
        targets, nontargets = inside[trials.target[inside]], inside[~trials.target[inside]]
        distinct = np.unique(scores[inside])
        targets_below, nontargets_below = (
            np.append(np.searchsorted(scores[rows], distinct), len(rows)) for rows in (targets, nontargets)
        )
        return cls(
            low,
            high,
            thresholds=np.append(distinct, high),
            targets=trials.enrol[targets].astype(np.intp),
            first=trials.enrol[nontargets].astype(np.intp),
            second=trials.test[nontargets].astype(np.intp),
            targets_below=targets_below,
            nontargets_below=nontargets_below,
            begins=np.append(np.arange(0, len(distinct), RUN if len(distinct) > FEW else FEW), len(distinct)),
            below=trials.by_speaker(scores < low),
        )

    def measure(
        self, drawn: np.ndarray, below: tuple[int, int], targets: int, nontargets: int, metrics: Sequence[Metric]
    ) -> list[float] | None:
        """Values of metrics where speakers were drawn so many times; None where a metric asks for what is outside.

        Args:
            drawn: int64, shape (speakers,).
            below: target and non-target trials that they make below the window.
            targets, nontargets: all that they make.
        """
        points = self._runs(drawn, *below, nontargets)
        if len(self.thresholds) <= FEW:
            points = self._open(drawn, points, 0, 0)
        values = []
        for metric in metrics:
            for doublings in itertools.count():
                rates = ErrorRates(points.thresholds, points.missed / targets, points.accepted / nontargets)
                value, threshold = metric(rates)
                row = int(np.searchsorted(points.thresholds, threshold))
                runs = points.run[max(0, row - 1) : row + 2]
                runs = runs[runs >= 0]
                if not len(runs):
                    break
                if runs.max() == len(self.begins):
                    return None
                points = self._open(drawn, points, int(runs.min()) - 2**doublings, int(runs.max()) + 2**doublings)
            values.append(value)
        return values

    def _runs(self, drawn: np.ndarray, missed_below: int, accepted_below: int, nontargets: int) -> _Points:
        """The first threshold of each run, a point for the others of each, and the last threshold.

        Where the window does not begin with the lowest score, a point before its own rejects no target trial; where it
        does not end with the highest, one behind accepts no non-target trial.
        """
        runs = len(self.begins) - 1
        missed, accepted = np.full(runs + 1, missed_below), np.full(runs + 1, nontargets - accepted_below)
        missed[1:] += np.cumsum(_sum_runs(self.targets_below[self.begins], drawn, self.targets))
        accepted[1:] -= np.cumsum(_sum_runs(self.nontargets_below[self.begins], drawn, self.first, self.second))
        thresholds, run = np.empty(2 * runs + 1), np.full(2 * runs + 1, -1)
        thresholds[::2], thresholds[1::2] = self.thresholds[self.begins], self.thresholds[self.begins[:-1] + 1]
        run[1::2] = np.arange(runs)
        points = _Points(thresholds, np.repeat(missed, 2)[:-1], np.repeat(accepted, 2)[1:], run)
        outside = np.array([len(self.begins)])
        if np.isfinite(self.low):
            before = np.array([-np.inf]), np.array([0]), accepted[:1], outside
            points = _Points(*map(np.append, before, points))
        if np.isfinite(self.high):
            points = _Points(*map(np.append, points, (np.array([np.inf]), missed[-1:], np.array([0]), outside)))
        return points

    def _open(self, drawn: np.ndarray, points: _Points, first: int, last: int) -> _Points:
        """The points, all thresholds of some runs among them."""
        begin, end = self.begins[max(0, first)], self.begins[min(last + 1, len(self.begins) - 1)]
        ends = self.thresholds[[begin, end]]
        start, stop = (int(row) for row in np.searchsorted(points.thresholds, ends, side="right") - 1)
        inner = slice(begin + 1, end)
        of_targets = slice(self.targets_below[begin], self.targets_below[end])
        of_nontargets = slice(self.nontargets_below[begin], self.nontargets_below[end])
        missed = _sum_first(drawn[self.targets[of_targets]])
        weights = _sum_first(drawn[self.first[of_nontargets]] * drawn[self.second[of_nontargets]])
        opened = _Points(
            self.thresholds[inner],
            points.missed[start] + missed[self.targets_below[inner] - of_targets.start],
            points.accepted[stop] + weights[-1] - weights[self.nontargets_below[inner] - of_nontargets.start],
            np.full(end - begin - 1, -1),
        )
        return points.replace(slice(start + 1, stop), opened)


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

    def __call__(self, drawn: np.ndarray, targets: np.ndarray, nontargets: np.ndarray) -> np.ndarray:
        """The values where speakers were drawn so many times.

        Args:
            drawn: int64, shape (draws, speakers).
            targets, nontargets: how many trials of both kinds they make, int64, shape (draws,).

        Returns:
            float64, shape (draws, metrics).
        """
        window = self._window
        below = window.below.weigh(drawn)
        found = []
        for row, of_speakers in enumerate(drawn):
            sizes = int(targets[row]), int(nontargets[row])
            values = window.measure(of_speakers, (int(below[0][row]), int(below[1][row])), *sizes, self._metrics)
            if values is None:
                values = self._all_trials(window).measure(of_speakers, (0, 0), *sizes, self._metrics)
            found.append(values)
        return np.array(found, dtype=np.float64)

    def _all_trials(self, narrow: _Window) -> _Window:
        """The window of all trials; of the next draws it is a wider one than that which did not do."""
        with self._lock:
            if self._window is narrow:
                self._widening *= WIDENING
                self._window = self._cut()
            self._all = self._all or self._window_of_all()
            return self._all

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


def _sum_runs(begins: np.ndarray, drawn: np.ndarray, *speakers: np.ndarray) -> np.ndarray:
    """Sums of the products of how often speakers of trials were drawn, over runs of trials.

    Args:
        begins: the first trial of each run, and the end of the last; never falling.
        drawn: int64, shape (speakers,).
        speakers: one or two of each trial, shape (trials,).
    """
    sums = np.zeros(len(begins) - 1, np.int64)
    for start in range(0, len(sums), RUNS_AT_ONCE):
        stop = min(start + RUNS_AT_ONCE, len(sums))
        part = slice(begins[start], begins[stop])
        weights = drawn.take(speakers[0][part])
        for other in speakers[1:]:
            weights *= drawn.take(other[part])
        filled = (begins[start + 1 : stop + 1] > begins[start:stop]).nonzero()[0]
        if len(filled):
            sums[start + filled] = np.add.reduceat(weights, begins[start + filled] - part.start)
    return sums
