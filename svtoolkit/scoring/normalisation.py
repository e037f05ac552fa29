"""Score normalisation against a cohort: Z-, T-, S-Norm and adaptive S-Norm.

The raw score s of a trial is related to how its two utterances e and t score against speakers who are neither:

    s' = 1/2 [(s - mean_e) / std_e + (s - mean_t) / std_t]

Z-Norm is the first of these two terms alone, T-Norm the second (R. Auckenthaler, M. Carey, H. Lloyd-Thomas, "Score
normalization for text-independent speaker verification systems", Digital Signal Processing 10, 2000).
mean and std (population, divided by n) are over the cosines of an utterance to the cohort. In S-Norm to the whole
cohort: S. Shum, N. Dehak, R. Dehak, J. Glass, "Unsupervised speaker adaptation based on the cosine similarity for
text-independent speaker verification", Odyssey 2010. In adaptive S-Norm to the ``top_n`` highest cosines of each
utterance: Z. N. Karam, W. M. Campbell, N. Dehak, "Towards reduced false-alarms using cohorts", ICASSP 2011, and
AS-Norm1 of P. Matějka et al., "Analysis of score normalization in multilingual speaker recognition", Interspeech
2017. WeSpeaker normalises so (wespeaker/bin/score_norm.py), with the mean embedding of each training speaker as
cohort and 300 of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.comparison import Comparison
from svtoolkit.scoring.cosine import EmbeddingTable, first_of, row_norms, unit_vectors, used_rows
from svtoolkit.system.processes import count_cores
from svtoolkit.system.threads import map_in_order

METHODS = ("as-norm", "s-norm", "z-norm", "t-norm")
DEFAULT_TOP_N = 300

BLOCK_VALUES = 1 << 21
"""Cosines that a core computes at a time (8 MiB of float32), whatever the number of utterances: with half as many the
product takes a tenth more, as the cohort is read for fewer rows at a time."""

NARROW_STD = 0.005
"""Below this the rounding of float32 (1e-7 of a cosine) may move a score by 1e-5, and cosines are float64 instead; of
scores that are no cosines, times the lengths of the vectors whose products they are."""

SMALLEST_STD = 1e-6
"""Below this the cohort's cosines differ by rounding only, and dividing by their spread would score noise."""

Vectors: TypeAlias = Callable[[EmbeddingTable, np.ndarray], np.ndarray]
"""Table and rows -> float64, (rows, n)."""


class CohortStatistics(NamedTuple):
    """Mean and population standard deviation of the cosines to the cohort; float64, both of shape (utterances,)."""

    mean: np.ndarray
    std: np.ndarray


def check_disjoint(cohort_speakers: Iterable[str], eval_speakers: Iterable[str]) -> None:
    """Refuse a cohort that shares speakers with the evaluation: it would push down the scores of their trials.

    Raises:
        UserError: names the first shared speakers and their number.
    """
    shared = sorted(set(cohort_speakers) & set(eval_speakers))
    if shared:
        raise UserError(
            f"{len(shared)} speakers are in the cohort and in the evaluation: {first_of(shared)}; "
            "take the cohort from training speakers, or drop these from it"
        )


def cohort_statistics(
    table: EmbeddingTable,
    rows: np.ndarray,
    cohort: EmbeddingTable,
    *,
    top_n: int | None = None,
    mean: np.ndarray | None = None,
    sides: tuple[Vectors, Vectors] | None = None,
    progress: Callable[[int], object] | None = None,
) -> CohortStatistics:
    """How utterances score against the cohort; cosines are taken in float32 where that moves no score by 1e-5.

    Args:
        table: embeddings of the utterances.
        rows: the rows of ``table`` that are wanted, int, shape (utterances,).
        cohort: one embedding per cohort member (speaker or utterance).
        top_n: take the ``top_n`` highest cosines of each utterance only; None = all.
        mean: vector subtracted from the embeddings of both tables first, shape (dimension,).
        sides: what is made of rows of ``table`` and of rows of ``cohort``, so that their products are the scores;
            None: their cosines.
        progress: called with the number of utterances finished since its last call.

    Raises:
        UserError: ``top_n`` that the cohort cannot give, cohort of another dimension, an utterance whose cosines to
            the cohort are all the same.
    """
    if cohort.dimension != table.dimension:
        raise UserError(
            f"the cohort's embeddings have {cohort.dimension} dimensions, the utterances' {table.dimension}; "
            "extract both with the same network"
        )
    taken = len(cohort) if top_n is None else top_n
    if len(cohort) < 2:
        raise UserError(f"the cohort has {len(cohort)} member; a standard deviation needs 2 or more")
    if not 2 <= taken <= len(cohort):
        raise UserError(
            f"top_n is {taken}, but the cohort has {len(cohort)} members; expected 2 to {len(cohort)}: "
            "lower top_n or take a larger cohort"
        )
    means, stds, sizes = np.empty(len(rows)), np.empty(len(rows)), np.ones(len(rows))
    of_rows, of_members = sides or (partial(unit_vectors, mean=mean),) * 2
    members = of_members(cohort, np.arange(len(cohort)))
    largest = 1.0 if sides is None else float(row_norms(members).max())

    def fill(chosen: np.ndarray, members: np.ndarray) -> int:
        vectors = of_rows(table, rows[chosen])
        if sides is not None:
            sizes[chosen] = largest * row_norms(vectors)
        cosines = vectors.astype(members.dtype) @ members
        if taken < len(cohort):
            cosines.partition(len(cohort) - taken, axis=1)
            cosines = cosines[:, len(cohort) - taken :]
        means[chosen] = cosines.mean(axis=1, dtype=np.float64)
        cosines -= means[chosen, None].astype(members.dtype)
        stds[chosen] = row_norms(cosines) / math.sqrt(taken)
        return len(cosines)

    def fill_all(chosen: np.ndarray, members: np.ndarray) -> Iterator[int]:
        blocks = np.array_split(chosen, math.ceil(len(chosen) * len(cohort) / BLOCK_VALUES))
        return map_in_order(
            partial(fill, members=np.ascontiguousarray(members.T)), blocks, min(count_cores(), len(blocks))
        )

    with threadpool_limits(1):  # a block a core, not all cores a block: they sort as well as multiply
        for finished in fill_all(np.arange(len(rows)), members.astype(np.float32)):
            if progress is not None:
                progress(finished)
        narrow = np.flatnonzero(stds < NARROW_STD * sizes)
        if len(narrow):
            deque(fill_all(narrow, members), maxlen=0)
    flat = np.flatnonzero(stds < SMALLEST_STD * sizes)
    if len(flat):
        raise UserError(
            f"{len(flat)} utterances (the first is {table.utterances[rows[flat[0]]]!r}) score the same against all "
            f"{taken} members of the cohort, so their scores cannot be normalised; "
            "take a cohort of distinct speakers"
        )
    return CohortStatistics(means, stds)


def normalise_scores(
    scores: np.ndarray,
    trials: Trials,
    table: EmbeddingTable,
    cohort: EmbeddingTable,
    *,
    method: str = "as-norm",
    top_n: int | None = None,
    mean: np.ndarray | None = None,
    comparison: Comparison | None = None,
    progress: Callable[[int], object] | None = None,
) -> np.ndarray:
    """Normalise the cosine scores of trials against a cohort; the formula is at the head of this module.

    Args:
        scores: raw cosine scores, shape (trials,), made with the same ``mean``.
        trials: their pairs.
        table: embeddings of the utterances of the trials.
        cohort: one embedding per cohort member, e.g. :func:`~svtoolkit.scoring.cosine.speaker_means` of the training
            data. Call :func:`check_disjoint` with the speakers of both first; this function sees no speakers.
        method: ``as-norm`` (the ``top_n`` highest cosines of each utterance) or ``s-norm`` (the whole cohort).
        top_n: for ``as-norm``, 300 if None; ``s-norm`` takes none.
        mean: vector subtracted from all embeddings first, those of the cohort too; None = nothing.
        comparison: what made the scores, where they are no cosines; a member of the cohort counts as one recording.
        progress: called with the number of utterances compared with the cohort since its last call.

    Returns:
        float64 scores, shape (trials,), in standard deviations above the cohort.

    Raises:
        UserError: unknown method, ``top_n`` with ``s-norm``, another number of scores than trials, scores that are
            not finite numbers, an utterance of the trials without an embedding or in the cohort, and what
            :func:`cohort_statistics` refuses.
    """
    if method not in METHODS:
        raise UserError(f"there is no score normalisation {method!r}; expected one of {', '.join(METHODS)}")
    if method != "as-norm" and top_n is not None:
        raise UserError(f"{method} uses the whole cohort, so top_n={top_n} has no effect; drop it or take as-norm")
    if method == "as-norm" and top_n is None:
        top_n = DEFAULT_TOP_N
    scores = np.asarray(scores, dtype=np.float64)
    if scores.shape != (len(trials),) or not np.isfinite(scores).all():
        raise UserError(
            f"found scores of shape {scores.shape} for {len(trials)} trials, "
            f"{int((~np.isfinite(scores)).sum())} of them NaN or infinite; expected one finite score per trial"
        )
    shared = sorted(trials.utterances & cohort.index.keys())
    if shared:
        raise UserError(
            f"{len(shared)} utterances of the trials are also in the cohort (the first is {shared[0]!r}); "
            "take the cohort from training speakers"
        )
    enrol, test = table.all_rows_of(trials)
    compared: list[tuple[tuple[np.ndarray, ...], tuple[Vectors, Vectors] | None]]
    if comparison is None:  # utterances of both sides are compared with the cohort once
        compared = [({"z-norm": (enrol,), "t-norm": (test,)}.get(method, (enrol, test)), None)]
    else:
        of_enrol = ((enrol,), (comparison.enrolled, comparison.tested))
        of_test = ((test,), (comparison.tested, comparison.enrolled))
        compared = {"z-norm": [of_enrol], "t-norm": [of_test]}.get(method, [of_enrol, of_test])
    terms = []
    for columns, sides in compared:
        rows, places = used_rows(len(table), *columns)
        statistics = cohort_statistics(table, rows, cohort, top_n=top_n, mean=mean, sides=sides, progress=progress)
        terms += [(scores - statistics.mean[place]) / statistics.std[place] for place in places]
    return np.asarray(sum(terms) / len(terms))
