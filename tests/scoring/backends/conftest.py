"""Embeddings drawn from the model that PLDA assumes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from svtoolkit.scoring.cosine import EmbeddingTable

Drawn = tuple[EmbeddingTable, dict[str, str]]


@pytest.fixture
def drawn() -> Callable[..., Drawn]:
    """Speakers N(mean, between), 3 to 6 recordings of each N(speaker, within), in float64."""

    def draw(speakers: int = 40, dimension: int = 5, seed: int = 0, between=None, within=None, offset=0.0) -> Drawn:
        rng = np.random.default_rng(seed)
        between = np.diag(np.linspace(3.0, 0.2, dimension)) if between is None else between
        within = np.eye(dimension) if within is None else within
        centres = offset + rng.normal(size=(speakers, dimension)) @ np.linalg.cholesky(between).T
        of_row = np.repeat(np.arange(speakers), rng.integers(3, 7, size=speakers))
        rows = centres[of_row] + rng.normal(size=(len(of_row), dimension)) @ np.linalg.cholesky(within).T
        numbers = np.arange(len(of_row)) - np.searchsorted(of_row, of_row)
        names = [f"s{speaker:03d}-{number}" for speaker, number in zip(of_row, numbers, strict=True)]
        return EmbeddingTable(names, rows), {name: name.partition("-")[0] for name in names}

    return draw
