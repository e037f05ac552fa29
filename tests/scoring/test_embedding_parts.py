"""Embeddings of very many utterances go through the parts to the archive without being held."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kaldiio
import numpy as np
import pytest

from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.scoring import embedding_parts
from svtoolkit.scoring.embedding_file import write_embeddings
from svtoolkit.scoring.embedding_parts import resumable_parts
from svtoolkit.scoring.extracted import Embedded

COUNT, DIM, BATCH = 8000, 1024, 100


def vector(row: int) -> np.ndarray:
    return np.full(DIM, row, np.float32)


def extractor() -> Any:
    """Which embeds from the end to the beginning, and one utterance in a hundred not at all."""

    def embed(utterances: list[Utterance], is_done: Any) -> Any:
        for end in range(len(utterances), 0, -BATCH):
            rows = [row for row in range(end - BATCH, end) if row % 100]
            yield Embedded(rows, [vector(row) for row in rows], {end - BATCH: "no"}, 1.0)

    return SimpleNamespace(stored=False, batch_seconds=9.0, limit=9.0, embed=embed)


def test_memory_does_not_grow_with_the_embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_parts, "SECONDS", 0.0)
    utterances = [Utterance(f"u{row:05}", "x", Path("/x")) for row in range(COUNT)]
    tracemalloc.start()
    with resumable_parts(tmp_path / "e.parts", {"weights": "x"}, 9.0) as parts:
        parts.extract(extractor(), utterances, lambda n: None)
        names = [utterances[row].utterance_id for row in parts.rows]
        write_embeddings(tmp_path / "e", names, parts.vectors())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < COUNT * DIM * 4 / 4
    found = kaldiio.load_scp(f"{tmp_path}/e.scp")
    assert list(found) == [f"u{row:05}" for row in range(COUNT) if row % 100]
    for row in (1, 99, 5123, COUNT - 1):
        np.testing.assert_array_equal(found[f"u{row:05}"], vector(row))
    assert not (tmp_path / "e.parts").exists()
