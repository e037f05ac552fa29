"""The nearest embeddings against all of them sorted, in parts of any size; an index that looks everywhere is exact."""

from __future__ import annotations

import numpy as np
import pytest

from svtoolkit.errors import UserError
from svtoolkit.scoring import search
from svtoolkit.scoring.cosine import EmbeddingTable
from svtoolkit.scoring.search import FaissIndex, Neighbours, nearest, recall


def table_of(prefix: str, rows: int, *, dimension: int = 8, seed: int = 0) -> EmbeddingTable:
    matrix = np.random.default_rng(seed).normal(size=(rows, dimension)).astype(np.float32)
    return EmbeddingTable([f"{prefix}{row}" for row in range(rows)], matrix)


def parts_of(table: EmbeddingTable, size: int) -> list[EmbeddingTable]:
    starts = range(0, len(table), size)
    return [EmbeddingTable(table.utterances[s : s + size], table.matrix[s : s + size]) for s in starts]


def by_sorting(queries: EmbeddingTable, among: EmbeddingTable, n: int) -> list[list[str]]:
    units = [t.matrix / np.linalg.norm(t.matrix.astype(np.float64), axis=1)[:, None] for t in (queries, among)]
    found = []
    for query, row in zip(queries.utterances, units[0] @ units[1].T, strict=True):
        order = [among.utterances[place] for place in np.argsort(-row)]
        found.append([name for name in order if name != query][:n])
    return found


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("n", [1, 5, 60])
def test_parts_change_nothing(monkeypatch, size, n):
    monkeypatch.setattr(search, "BLOCK_VALUES", 50)
    queries, among, seen = table_of("q", 11), table_of("x", 40, seed=1), []
    found = nearest(queries, parts_of(among, size), n, seen.append)
    assert found.names == by_sorting(queries, among, n)
    assert sum(seen) == 40
    units = queries.matrix / np.linalg.norm(queries.matrix, axis=1, keepdims=True)
    for unit, names, cosines in zip(units, *found, strict=True):
        vectors = among.matrix[among.lookup(names)]
        np.testing.assert_allclose(cosines, vectors @ unit / np.linalg.norm(vectors, axis=1), atol=1e-6)
        assert (np.diff(cosines) <= 0).all()


def test_an_embedding_is_not_its_own_neighbour():
    among = table_of("x", 30)
    assert nearest(among, parts_of(among, 8), 3).names == by_sorting(among, among, 3)


def test_another_dimension_is_refused():
    with pytest.raises(UserError, match="have 8 dimensions, those looked through 5"):
        nearest(table_of("q", 2), [table_of("x", 2, dimension=5)], 1)


def test_an_index_that_looks_through_every_cell_is_exact():
    pytest.importorskip("faiss")
    queries, among = table_of("q", 20), table_of("x", 1000, seed=1)
    exact = nearest(queries, [among], 5)
    everywhere = FaissIndex(parts_of(among, 400), len(among), probes=1000)
    assert recall(everywhere.nearest(queries, 5), exact) == 1
    assert recall(FaissIndex(parts_of(among, 400), len(among), probes=1).nearest(queries, 5), exact) < 1
    assert everywhere.nearest(among, 3).names == nearest(among, [among], 3).names
    with pytest.raises(UserError, match="have 5 dimensions, those looked through 8"):
        everywhere.nearest(table_of("q", 2, dimension=5), 1)


def test_recall_counts_the_true_neighbours():
    true = Neighbours([["a", "b"], ["c"]], [])
    assert recall(Neighbours([["b", "x"], ["c"]], []), true) == pytest.approx(2 / 3)
