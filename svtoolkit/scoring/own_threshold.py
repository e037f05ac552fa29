"""A threshold from the recordings of a few speakers: the upper tail of the cosines of different speakers.

All pairs of recordings are trials, each pair of speakers counting once however many recordings it has. 20 speakers make
190 pairs, so that the quantile of 1 % itself would rest on the two closest pairs, and that of 0.1 % on none. Instead a
normal distribution is laid through the tail: a straight line through the quantiles of 20 % to 1 %, of Fisher's
z = artanh(cosine), whose distribution is less skewed near 1, against those of the standard normal distribution.

Chosen among the plain quantile, a normal distribution of all scores, with and without its skewness (Cornish-Fisher), a
generalised Pareto distribution above the quantile of 10 % (L-moments) and means of these, by the false-alarm rates
realised on other speakers: normal embeddings with two sexes and a common mean, and real speech under a network trained
on synthetic voices (docs/threshold.md). All but the normal distribution of all scores, which was far too strict on real
speech, are right in the median for 1 %; for 0.1 % the plain quantile and the Pareto tail are laxer than this line.

How far the false-alarm rate may lie from the one asked for by the chance of who was recorded is told by drawing the
speakers anew (the vertex bootstrap of ``svtoolkit.scoring.bootstrap``). Another room, telephone or language than that
of the recordings is not in that interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from svtoolkit.errors import UserError
from svtoolkit.scoring.calibration import Calibration, fit_calibration
from svtoolkit.scoring.score_counts import count_scores

FEWEST_SPEAKERS = 5
MOST_RECORDINGS = 2000
"""Of which all pairs are compared: 4 million cosines."""

TAIL = np.geomspace(0.2, 0.01, 10)
"""Shares of the trials above the quantiles that the line goes through."""

NEARLY_ONE = 1 - 1e-7
"""Cosine of a recording and its copy; that of 1 has no finite z."""


@dataclass(frozen=True)
class OwnThreshold:
    """A threshold and what it rests on.

    Attributes:
        threshold: cosine that a share ``fa_rate`` of the pairs of different speakers is expected to reach.
        fa_low, fa_high: bounds of the rate, 90 % of the drawn sets of speakers between them.
        p_fa: share of the non-target trials here that reach it, pairs of speakers weighing the same.
        p_miss: share of the target trials here below it; None: no speaker has two recordings.
        calibration: from the cosine to the log-likelihood ratio; None as well.
        speakers, recordings, targets, nontargets: their numbers.
        score_counts: of ``svtoolkit.scoring.score_counts``.
    """

    threshold: float
    fa_low: float
    fa_high: float
    p_fa: float
    p_miss: float | None
    calibration: Calibration | None
    speakers: int
    recordings: int
    targets: int
    nontargets: int
    score_counts: dict[str, Any]


@dataclass(frozen=True)
class OwnTrials:
    """All pairs of recordings of several speakers.

    Attributes:
        targets: cosines of two recordings of one speaker, (targets,).
        nontargets: cosines of recordings of two speakers, descending, (nontargets,).
        first, second: the numbers of these two speakers, (nontargets,).
        weights: of non-target trials, 1 / trials of that pair of speakers.
        speakers: how many there are.
    """

    targets: np.ndarray
    nontargets: np.ndarray
    first: np.ndarray
    second: np.ndarray
    weights: np.ndarray
    speakers: int

    @classmethod
    def make(cls, vectors: np.ndarray, speakers: np.ndarray) -> OwnTrials:
        """Compare all with all.

        Args:
            vectors: embeddings of length one, (recordings, dimension).
            speakers: number of the speaker of each, from 0, (recordings,).
        """
        one, other = np.triu_indices(len(vectors), 1)
        cosines = np.clip((vectors @ vectors.T)[one, other], -1, 1)
        first, second = speakers[one], speakers[other]
        same = first == second
        order = np.argsort(-cosines[~same], kind="stable")
        first, second = first[~same][order], second[~same][order]
        recordings = np.bincount(speakers)
        weights = 1.0 / (recordings[first] * recordings[second])
        return cls(cosines[same], cosines[~same][order], first, second, weights, len(recordings))

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """Weights of the non-target trials when as many speakers are drawn with replacement."""
        times = np.bincount(rng.integers(self.speakers, size=self.speakers), minlength=self.speakers)
        return self.weights * times[self.first] * times[self.second]


@dataclass(frozen=True)
class NormalTail:
    """z = artanh(cosine) of pairs of different speakers, as if its upper tail were normal.

    Attributes:
        mean, std: of that distribution.
    """

    mean: float
    std: float

    @classmethod
    def fit(cls, cosines: np.ndarray, weights: np.ndarray) -> NormalTail:
        """Least squares through the quantiles ``TAIL``.

        Args:
            cosines: descending, (trials,).
            weights: how often each counts, (trials,).
        """
        above = np.cumsum(weights) / weights.sum()
        quantiles = cosines[np.minimum(np.searchsorted(above, TAIL), len(cosines) - 1)]
        z = np.arctanh(np.clip(quantiles, -NEARLY_ONE, NEARLY_ONE))
        std, mean = np.polyfit(-ndtri(TAIL), z, 1)
        return cls(float(mean), float(std))

    def threshold(self, share: float) -> float:
        """Cosine that this share of the trials reaches."""
        return float(np.tanh(self.mean - self.std * ndtri(share)))

    def rate(self, threshold: float) -> float:
        """Share of the trials that reach a cosine."""
        distance = self.mean - np.arctanh(np.clip(threshold, -NEARLY_ONE, NEARLY_ONE))
        return float(ndtr(distance / max(self.std, 1e-12)))


def choose_threshold(
    vectors: np.ndarray, speakers: list[str], fa_rate: float, *, resamples: int = 200, seed: int = 0
) -> OwnThreshold:
    """The threshold of a false-alarm rate; the method is at the head of this module.

    Args:
        vectors: embeddings of length one, (recordings, dimension).
        speakers: the speaker of each.
        fa_rate: share of the pairs of different speakers that may be accepted.
        resamples: how often the speakers are drawn for the bounds of the rate.
        seed: of these draws.

    Raises:
        UserError: fewer than five speakers, a rate that is none or that the speakers are too few for.
    """
    names = sorted(set(speakers))
    if len(names) < FEWEST_SPEAKERS:
        raise UserError(f"found recordings of {len(names)} speakers, expected {FEWEST_SPEAKERS} or more; record others")
    if not 0 < fa_rate < 0.5:
        raise UserError(f"fa_rate is {fa_rate:g}; expected a share between 0 and 0.5, such as 0.01")
    number = {name: position for position, name in enumerate(names)}
    trials = OwnTrials.make(vectors.astype(np.float64), np.array([number[name] for name in speakers]))
    tail = NormalTail.fit(trials.nontargets, trials.weights)
    threshold = tail.threshold(fa_rate)
    rng = np.random.default_rng(seed)
    rates: list[float] = []
    while len(rates) < resamples:
        weights = trials.drawn(rng)
        if np.count_nonzero(weights):
            # the speakers who were recorded are to those drawn as all others are to them
            rates.append(tail.rate(NormalTail.fit(trials.nontargets, weights).threshold(fa_rate)))
    calibration, p_miss = None, None
    if len(trials.targets):
        scores = np.concatenate([trials.targets, trials.nontargets])
        calibration = fit_calibration(scores, np.arange(len(scores)) < len(trials.targets))
        p_miss = float(np.mean(trials.targets < threshold))
    low, high = np.quantile(rates, [0.05, 0.95])
    accepted = trials.weights[trials.nontargets >= threshold].sum() / trials.weights.sum()
    return OwnThreshold(
        threshold, float(low), float(high), float(accepted), p_miss, calibration,
        len(names), len(vectors), len(trials.targets), len(trials.nontargets),
        count_scores(trials.targets, trials.nontargets),
    )  # fmt: skip
