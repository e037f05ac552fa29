"""Confidence intervals of error rates by resampling speakers.

Trials of one speaker are not independent, so trials must not be resampled one by one: the interval would be far
too narrow. Whole speakers are drawn with replacement, as many as there are, and a trial counts as often as its
speakers were drawn: a target trial m times if its speaker was drawn m times, a non-target trial m * n times if its
two speakers were drawn m and n times. Two copies of one speaker make no trials with each other: their scores would be
target scores under a non-target label, so there is nothing to count.

Drawing subjects with all their scores is the subsets bootstrap of R. M. Bolle, N. K. Ratha, S. Pankanti, "Error
analysis of pattern recognition systems: the subsets bootstrap", Computer Vision and Image Understanding 93 (2004)
1-33; in speaker verification N. Poh, A. Martin, S. Bengio, "Performance generalization in biometric authentication
using joint user-specific and sample bootstraps", IEEE TPAMI 29 (2007) 492-498. The product for pairs is the vertex
bootstrap of T. A. B. Snijders and S. P. Borgatti, "Non-parametric standard errors and tests for network statistics",
Connections 22 (1999) 61-70, compared with others by R. Fogliato, P. Patil, P. Perona, "Confidence intervals for
error rates in 1:1 matching tasks", IJCV 2024 (arXiv:2306.01198). Where these fill the pairs of copies with other
pairs or their mean, here they are left out.

The bounds are percentiles of the resampled metric (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
chapter 13). They speak of other speakers under the same conditions, not of other sessions, channels or training
seeds; with fewer than about 20 speakers, or an error rate near 0, they are too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from svtoolkit.data.numbered_ids import NumberedIds, number_ids
from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.metrics import check_scores, eer_from_rates
from svtoolkit.scoring.resampled_rates import SMALL, Metric, ResampledMetrics
from svtoolkit.scoring.speaker_trials import Counts, SpeakerTrials
from svtoolkit.system.processes import count_cores
from svtoolkit.system.threads import map_in_order

DRAWS = 16
"""Resamples at a time: the trials of pairs of speakers are walked through once for all of them."""


class Interval(NamedTuple):
    """Lower and upper bound, in the unit of the metric."""

    low: float
    high: float


def trial_speakers(trials: Trials, utt2spk: Mapping[str, str]) -> tuple[NumberedIds, NumberedIds]:
    """The speakers of the enrolment and of the test utterance of every trial.

    Raises:
        UserError: an utterance of the trials has no speaker; gives its name and how many there are.
    """
    unknown = sorted(trials.utterances - utt2spk.keys())
    if unknown:
        raise UserError(
            f"{len(unknown)} of {len(trials.utterances)} utterances of the trials are not in utt2spk "
            f"(the first is {unknown[0]!r}); take the utt2spk of the evaluation data"
        )
    number: dict[str, int] = {}
    places = np.array([number.setdefault(utt2spk[name], len(number)) for name in trials.names], np.int64)
    names = list(number)
    enrol, test = trials.numbered
    return NumberedIds(names, places[enrol]), NumberedIds(names, places[test])


def bootstrap_interval(
    scores: np.ndarray,
    enrol_speakers: Sequence[str],
    test_speakers: Sequence[str],
    target: np.ndarray,
    metric: Metric = eer_from_rates,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Bounds of a metric over resampled speakers; the method and its sources are at the head of this module.

    Args:
        scores: shape (trials,).
        enrol_speakers: speaker of the enrolment side of each trial; see :func:`trial_speakers`.
        test_speakers: speaker of the test side of each trial.
        target: true where both are the same; shape (trials,).
        metric: of the error rates.
        resamples: how often the speakers are drawn; time grows with resamples * trials.
        confidence: share of the resampled values between the bounds.
        seed: the same seed gives the same bounds.

    Raises:
        UserError: lengths that differ, labels that contradict the speakers, impossible ``resamples`` or
            ``confidence``, and what :func:`~svtoolkit.scoring.metrics.check_scores` refuses.
    """
    sides = enrol_speakers, test_speakers
    return bootstrap_intervals(scores, *sides, target, [metric], resamples=resamples, confidence=confidence, seed=seed)[
        0
    ]


def bootstrap_intervals(
    scores: np.ndarray,
    enrol_speakers: Sequence[str],
    test_speakers: Sequence[str],
    target: np.ndarray,
    metrics: Sequence[Metric],
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
) -> list[Interval]:
    """Bounds of several metrics over the same draws of the speakers; each is that of :func:`bootstrap_interval`.

    Args:
        progress: called with the number of resamples made since its last call.
    """
    check_confidence(confidence)
    sides = enrol_speakers, test_speakers
    draws = resample_metrics([scores], *sides, target, metrics, resamples=resamples, seed=seed, progress=progress)
    bounds = np.quantile(draws[:, 0], [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return [Interval(float(low), float(high)) for low, high in bounds.T]


def check_confidence(confidence: float) -> None:
    """Refuse what is no level of an interval."""
    if not 0 < confidence < 1:
        raise UserError(f"confidence is {confidence}; expected a share between 0 and 1, such as 0.95")


def resample_metrics(
    systems: Sequence[np.ndarray],
    enrol_speakers: Sequence[str],
    test_speakers: Sequence[str],
    target: np.ndarray,
    metrics: Sequence[Metric],
    *,
    resamples: int,
    seed: int,
    progress: Callable[[int], object] | None = None,
) -> np.ndarray:
    """Metrics of systems that scored the same trials; in each resample all of them see the same speakers.

    Args:
        systems: scores of each, shape (trials,).
        enrol_speakers, test_speakers, target, resamples, seed: see :func:`bootstrap_interval`.
        progress: see :func:`bootstrap_intervals`.

    Returns:
        float64, shape (resamples, systems, metrics).

    Raises:
        UserError: as :func:`bootstrap_interval`.
    """
    if resamples < 2:
        raise UserError(f"resamples is {resamples}; expected 2 or more, 1000 for bounds of 95 %")
    flags = np.asarray(target, dtype=bool)
    checked = [check_scores(scores, flags)[0] for scores in systems]
    trials = number_speakers(enrol_speakers, test_speakers, flags)
    counts = trials.by_speaker(np.ones(len(flags), dtype=bool))
    resampled = [ResampledMetrics(scores, trials, metrics) for scores in checked]

    def measure(draws: Draws) -> np.ndarray:
        return np.stack([system(*draws) for system in resampled], axis=1)

    jobs = count_cores() if len(flags) > SMALL else 1
    draws = draw_speakers(np.random.default_rng(seed), counts, trials.speakers, resamples)
    values = []
    for found in map_in_order(measure, draws, jobs):
        values.append(found)
        if progress is not None:
            progress(len(found))
    return np.concatenate(values)


class Draws(NamedTuple):
    """Speakers drawn some times over.

    Attributes:
        drawn: how often each of them was, int64, shape (draws, speakers).
        targets, nontargets: how many trials of both kinds they make, one or more; int64, shape (draws,).
    """

    drawn: np.ndarray
    targets: np.ndarray
    nontargets: np.ndarray


def draw_speakers(rng: np.random.Generator, counts: Counts, speakers: int, resamples: int) -> Iterator[Draws]:
    """Resamples that have trials of both kinds, ``DRAWS`` at a time.

    With few speakers a draw may hold no trial of a kind. It is drawn again; at worst (one speaker with target trials,
    two others with a non-target trial) 2 draws of 9 are of use, so the loop ends.
    """
    while resamples:
        places = (rng.integers(speakers, size=speakers) for _ in range(min(DRAWS, resamples)))
        drawn = np.stack([np.bincount(each, minlength=speakers) for each in places])
        targets, nontargets = counts.weigh(drawn)
        useful = (targets > 0) & (nontargets > 0)
        resamples -= int(np.count_nonzero(useful))
        if useful.any():
            yield Draws(drawn[useful], targets[useful], nontargets[useful])


def number_speakers(enrol_speakers: Sequence[str], test_speakers: Sequence[str], target: np.ndarray) -> SpeakerTrials:
    """Speakers as numbers, in the order in which they appear."""
    if not len(enrol_speakers) == len(test_speakers) == len(target):
        raise UserError(
            f"found {len(enrol_speakers)} enrolment and {len(test_speakers)} test speakers for {len(target)} trials; "
            "expected one of each per trial"
        )
    names, enrol, test = number_ids(enrol_speakers, test_speakers)
    wrong = np.flatnonzero((enrol == test) != target)
    if len(wrong):
        trial = wrong[0]
        label = "target" if target[trial] else "non-target"
        raise UserError(
            f"the labels of {len(wrong)} trials contradict their speakers (trial {trial}, counted from 0, is a {label} "
            f"trial of {enrol_speakers[trial]!r} and {test_speakers[trial]!r}); correct the trial list or utt2spk"
        )
    return SpeakerTrials(enrol.astype(np.int32), test.astype(np.int32), target, len(names))
