"""The nearest of many embeddings by cosine: exact, a part at a time, or by faiss's inverted index."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable, unit_vectors
from svtoolkit.system.processes import count_cores
from svtoolkit.system.threads import map_in_order

PART = 100_000
"""Embeddings read at a time: 100 MB of 256 dimensions, however many there are."""

BLOCK_VALUES = 1 << 22
"""Cosines that a core computes at a time (16 MiB of float32)."""

TRAINING_VECTORS = 64
"""Of each cell of an index, for its place."""


class Neighbours(NamedTuple):
    """The nearest of each query, nearest first.

    Attributes:
        names: a list a query, of ``n`` or, where there are fewer, of all.
        cosines: float32, as long as the names.
    """

    names: list[list[str]]
    cosines: list[np.ndarray]


def nearest(
    queries: EmbeddingTable,
    parts: Iterable[EmbeddingTable],
    n: int,
    progress: Callable[[int], object] = lambda count: None,
) -> Neighbours:
    """Compare every query with every embedding; one of its own name is not its neighbour.

    Args:
        parts: what is looked through.
        n: neighbours of each query.
        progress: called with the number of embeddings looked through since its last call.

    Raises:
        UserError: embeddings of another dimension.
    """
    units = unit_vectors(queries, np.arange(len(queries))).astype(np.float32)
    cosines = np.empty((len(queries), 0), dtype=np.float32)
    places = np.empty((len(queries), 0), dtype=np.int64)
    names: list[str] = []
    for part in parts:
        _check_dimension(queries, part.dimension)
        found, rows = _nearest_of_part(units, queries.utterances, part, n)
        cosines, places = _best(np.hstack([cosines, found]), np.hstack([places, rows + len(names)]), n)
        names += part.utterances
        progress(len(part))
    order = np.lexsort((places, -cosines), axis=1)
    cosines, places = np.take_along_axis(cosines, order, axis=1), np.take_along_axis(places, order, axis=1)
    kept = np.isfinite(cosines)
    return Neighbours(
        [[names[place] for place in row[mask]] for row, mask in zip(places, kept, strict=True)],
        [row[mask] for row, mask in zip(cosines, kept, strict=True)],
    )


def _nearest_of_part(units: np.ndarray, own: list[str], part: EmbeddingTable, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines, -inf for a query itself, and rows of the nearest of a part; both of shape (queries, n or fewer)."""
    members = unit_vectors(part, np.arange(len(part))).astype(np.float32).T
    itself = part.lookup(own)

    def search(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cosines = units[block] @ members
        there = np.flatnonzero(itself[block] >= 0)
        cosines[there, itself[block][there]] = -np.inf
        return _best(cosines, np.broadcast_to(np.arange(len(part)), cosines.shape), n)

    blocks = np.array_split(np.arange(len(units)), math.ceil(len(units) * len(part) / BLOCK_VALUES))
    with threadpool_limits(1):
        found = list(map_in_order(search, blocks, min(count_cores(), len(blocks))))
    return np.vstack([cosines for cosines, _ in found]), np.vstack([rows for _, rows in found])


def _best(cosines: np.ndarray, places: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``n`` highest of each row, in no order."""
    if cosines.shape[1] <= n:
        return cosines, places
    chosen = np.argpartition(cosines, cosines.shape[1] - n, axis=1)[:, cosines.shape[1] - n :]
    return np.take_along_axis(cosines, chosen, axis=1), np.take_along_axis(places, chosen, axis=1)


def _check_dimension(queries: EmbeddingTable, dimension: int) -> None:
    if dimension != queries.dimension:
        raise UserError(
            f"the embeddings that are looked for have {queries.dimension} dimensions, those looked through "
            f"{dimension}; extract both with one model"
        )


class FaissIndex:
    """Embeddings in cells around centres (IndexIVFFlat); a query is compared with those of the nearest cells alone.

    Args:
        parts: the embeddings; centres are learnt from the first of them.
        size: how many they are, about: there are some 4 * sqrt(size) cells.
        probes: cells that a query is compared with.
        progress: called with the number of embeddings taken in since its last call.

    Raises:
        UserError: faiss is not installed.
    """

    def __init__(
        self,
        parts: Iterable[EmbeddingTable],
        size: int,
        probes: int,
        progress: Callable[[int], object] = lambda count: None,
    ) -> None:
        try:
            import faiss
        except ImportError as error:
            raise UserError(
                "index=faiss needs a package that is not installed: `pip install faiss-cpu`, or take index=exact"
            ) from error
        self._names: list[str] = []
        self._index: Any = None
        self._dimension = 0
        for part in parts:
            units = unit_vectors(part, np.arange(len(part))).astype(np.float32)
            if self._index is None:
                self._dimension = part.dimension
                cells = max(1, min(round(4 * math.sqrt(size)), len(part) // TRAINING_VECTORS))
                self._index = faiss.index_factory(part.dimension, f"IVF{cells},Flat", faiss.METRIC_INNER_PRODUCT)
                self._index.cp.seed = 0
                self._index.train(units)
                self._index.nprobe = min(probes, cells)
            self._index.add(units)
            self._names += part.utterances
            progress(len(part))

    def nearest(self, queries: EmbeddingTable, n: int) -> Neighbours:
        """As :func:`nearest`, of the cells that are looked through."""
        _check_dimension(queries, self._dimension)
        units = unit_vectors(queries, np.arange(len(queries))).astype(np.float32)
        cosines, places = self._index.search(units, n + 1)
        names, kept = [], []
        for query, row, values in zip(queries.utterances, places.tolist(), cosines, strict=True):
            found = [(self._names[place], at) for at, place in enumerate(row) if place >= 0]
            found = [(name, at) for name, at in found if name != query][:n]
            names.append([name for name, _ in found])
            kept.append(values[[at for _, at in found]])
        return Neighbours(names, kept)


def recall(found: Neighbours, exact: Neighbours) -> float:
    """Share of the true neighbours that were found."""
    hits = sum(len(set(ours) & set(true)) for ours, true in zip(found.names, exact.names, strict=True))
    return hits / max(1, sum(map(len, exact.names)))
