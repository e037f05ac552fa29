"""Embeddings by utterance and the cosine scores of trials."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.data.utt2spk import invert
from svtoolkit.errors import UserError
from svtoolkit.system.processes import count_cores
from svtoolkit.system.threads import map_in_order

Block = TypeVar("Block")

BLOCK_VALUES = 1 << 18
"""Numbers gathered at a time (1 MiB of float32): a block stays in cache, whatever the number of trials."""

SHOWN = 3
"""How many names an error message lists before it says how many more there are."""


class EmbeddingTable:
    """Embeddings and the utterances (or speakers) they belong to.

    Attributes:
        utterances: ids in the order of the rows.
        matrix: float32 or float64, shape (utterances, dimension).
        index: id -> row.
        recordings: how many recordings each row is the mean of, int, shape (utterances,); None: one, or it does not
            matter.
    """

    def __init__(self, utterances: Sequence[str], matrix: np.ndarray, recordings: np.ndarray | None = None) -> None:
        """Check and keep; nothing is copied.

        Raises:
            UserError: no rows, another shape or type, an id that is listed twice, an embedding that is zero or holds
                NaN or infinity; names the utterance.
        """
        if matrix.ndim != 2 or matrix.dtype not in (np.float32, np.float64) or len(matrix) != len(utterances):
            raise UserError(
                f"found embeddings of shape {matrix.shape} and type {matrix.dtype} for {len(utterances)} utterances; "
                "expected float32 or float64 of shape (utterances, dimension)"
            )
        if matrix.size == 0:
            raise UserError(
                f"found embeddings of shape {matrix.shape}; expected one utterance and one dimension or more"
            )
        self.utterances = list(utterances)
        self.matrix = matrix
        self.recordings = recordings
        self.index = {utterance: row for row, utterance in enumerate(self.utterances)}
        if len(self.index) != len(self.utterances):
            twice = (utt for row, utt in enumerate(self.utterances) if self.index[utt] != row)
            raise UserError(f"the embedding of {next(twice)!r} is listed twice; keep one embedding per utterance")
        norms = row_norms(matrix)
        self._refuse(~np.isfinite(norms), "holds NaN or infinity; extract it again, or look at its audio")
        self._refuse(norms == 0, "is zero in every dimension, and a cosine with it does not exist; look at its audio")

    def __len__(self) -> int:
        return len(self.utterances)

    @property
    def dimension(self) -> int:
        return self.matrix.shape[1]

    def lookup(self, utterances: Sequence[str]) -> np.ndarray:
        """Row of each utterance, -1 where there is none; int64, shape (utterances,)."""
        rows = map(self.index.get, utterances, itertools.repeat(-1))
        return np.fromiter(rows, dtype=np.int64, count=len(utterances))

    def rows_of(self, trials: Trials) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the utterances of both sides, -1 where there is none; int64, both of shape (trials,)."""
        rows = self.lookup(trials.names)
        enrol, test = trials.numbered
        return rows[enrol], rows[test]

    def all_rows_of(self, trials: Trials) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`rows_of`, where there has to be one.

        Raises:
            UserError: see :func:`require_embeddings`.
        """
        enrol, test = self.rows_of(trials)
        if len(trials) and min(enrol.min(), test.min()) < 0:
            require_embeddings(trials.utterances, self)
        return enrol, test

    def _refuse(self, bad: np.ndarray, fault: str) -> None:
        rows = np.flatnonzero(bad)
        if len(rows):
            more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
            raise UserError(f"the embedding of {self.utterances[rows[0]]!r}{more} {fault}")


def mean_embedding(table: EmbeddingTable) -> np.ndarray:
    """Mean over all rows, float64, shape (dimension,): what is subtracted before cosines are taken."""
    return table.matrix.mean(axis=0, dtype=np.float64)


def speaker_means(table: EmbeddingTable, utt2spk: Mapping[str, str]) -> EmbeddingTable:
    """Mean embedding of each speaker, for a cohort or for enrolment from several utterances.

    Embeddings are averaged as they are, not length-normalised before: so does WeSpeaker (tools/vector_mean.py),
    and a cohort made otherwise gives other normalised scores.

    Args:
        table: embeddings; those of utterances outside ``utt2spk`` are left out.
        utt2spk: utterance -> speaker, the utterances to average.

    Returns:
        a table with one row per speaker, speakers in C-locale order, in the type of ``table``.

    Raises:
        UserError: no utterance at all, utterances without an embedding, a mean that is zero.
    """
    if not utt2spk:
        raise UserError("utt2spk lists no utterance, so there is no speaker to average; expected one or more")
    require_embeddings(utt2spk, table)
    spk2utt = invert(utt2spk)
    means = np.empty((len(spk2utt), table.dimension), dtype=table.matrix.dtype)
    for row, utterances in enumerate(spk2utt.values()):
        means[row] = table.matrix[table.lookup(utterances)].mean(axis=0, dtype=np.float64)
    return EmbeddingTable(list(spk2utt), means)


def cosine_scores(table: EmbeddingTable, trials: Trials, *, mean: np.ndarray | None = None) -> np.ndarray:
    """Cosine of the two embeddings of every trial.

    Args:
        table: embeddings of all utterances of the trials.
        trials: the pairs to score; each utterance is normalised once, however many trials it is in.
        mean: vector subtracted from every embedding first, shape (dimension,), e.g. :func:`mean_embedding` of the
            training data; None = nothing.

    Returns:
        float64 scores in [-1, 1], shape (trials,).

    Raises:
        UserError: missing embeddings, a mean of another shape, an embedding that is zero once the mean is removed.
    """
    enrol, test = table.all_rows_of(trials)
    scores, norms = np.empty(len(trials)), np.ones(len(table))
    used, _ = used_rows(len(table), enrol, test)

    def measure(rows: np.ndarray) -> None:
        norms[rows] = _norms(table, rows, _vectors(table, rows, mean))

    def fill(block: slice) -> None:
        e, t = enrol[block], test[block]
        first, second = (_vectors(table, rows, mean).astype(np.float64, copy=False) for rows in (e, t))
        products = np.einsum("td,td->t", first, second)
        np.clip(products / (norms[e] * norms[t]), -1.0, 1.0, out=scores[block])

    step = max(1, BLOCK_VALUES // table.dimension)
    on_all_cores(measure, [used[start : start + step] for start in range(0, len(used), step)])
    on_all_cores(fill, [slice(start, start + step) for start in range(0, len(trials), step)])
    return scores


def on_all_cores(function: Callable[[Block], object], blocks: Sequence[Block]) -> None:
    """Call a function with each block, a block a core at a time."""
    deque(map_in_order(function, blocks, max(1, min(count_cores(), len(blocks)))), maxlen=0)


def embedded_part(trials: Trials, table: EmbeddingTable) -> Trials:
    """The trials of a list whose two embeddings exist.

    Raises:
        UserError: there is none.
    """
    enrol, test = table.rows_of(trials)
    kept = np.flatnonzero((enrol >= 0) & (test >= 0))
    if not len(kept):
        raise UserError(
            f"none of the {len(trials)} trials has both its embeddings; "
            f"the table is of other utterances, such as {table.utterances[0]!r}"
        )
    return trials.take(kept)


def used_rows(length: int, *columns: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The rows of a table of so many that are in any column, ascending, and the columns as places among these."""
    used = np.zeros(length, dtype=bool)
    for column in columns:
        used[column] = True
    places = np.cumsum(used) - 1
    return np.flatnonzero(used), [places[column] for column in columns]


def unit_vectors(table: EmbeddingTable, rows: np.ndarray, mean: np.ndarray | None = None) -> np.ndarray:
    """The embeddings of these rows, less the mean, of length one; float64, shape (rows, dimension).

    Raises:
        UserError: a mean of another shape or not finite, an embedding that equals the mean.
    """
    vectors = _vectors(table, rows, mean).astype(np.float64, copy=False)
    vectors /= _norms(table, rows, vectors)[:, None]
    return vectors


def _vectors(table: EmbeddingTable, rows: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
    """Copies of the embeddings of these rows, of the table's type; less the mean, where there is one, in float64."""
    vectors = table.matrix.take(rows, axis=0)
    if mean is None:
        return vectors
    if mean.shape != (table.dimension,) or not np.isfinite(mean).all():
        raise UserError(
            f"the mean to subtract has shape {mean.shape}; expected finite values of shape ({table.dimension},), "
            "the mean of embeddings of the same network"
        )
    return vectors - mean.astype(np.float64)


def _norms(table: EmbeddingTable, rows: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Lengths of the embeddings of these rows, as :func:`_vectors` gives them."""
    norms = row_norms(vectors)
    zero = np.flatnonzero(norms == 0)
    if len(zero):
        raise UserError(
            f"the embedding of {table.utterances[rows[zero[0]]]!r} equals the mean that is subtracted, so its cosine "
            "does not exist; take the mean over more utterances than this one"
        )
    return norms


def row_norms(matrix: np.ndarray) -> np.ndarray:
    """Euclidean length of each row, summed in float64 so that long float32 rows neither overflow nor vanish."""
    return np.sqrt(np.einsum("nd,nd->n", matrix, matrix, dtype=np.float64))


def first_of(names: Sequence[str]) -> str:
    """The first names of a list, for a message that also gives their number."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def require_embeddings(utterances: Iterable[str], table: EmbeddingTable) -> None:
    """Refuse a list of utterances some of which have no embedding.

    Raises:
        UserError: names the first missing utterances, their number and that of the list.
    """
    wanted = set(utterances)
    missing = sorted(wanted - table.index.keys())
    if missing:
        raise UserError(
            f"{len(missing)} of {len(wanted)} utterances have no embedding: {first_of(missing)}; "
            f"the table holds {len(table)} embeddings; extract the missing ones"
        )
