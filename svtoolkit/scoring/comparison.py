"""Ways to compare two embeddings whose sides differ: the score is a product of what is made of each side."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.scoring.cosine import EmbeddingTable


class Comparison(Protocol):
    """A score that is the inner product of a vector of the enrolment side and one of the test side."""

    def enrolled(self, table: EmbeddingTable, rows: np.ndarray) -> np.ndarray:
        """Of these rows as they are enrolled, float64, (rows, n)."""

    def tested(self, table: EmbeddingTable, rows: np.ndarray) -> np.ndarray:
        """Of these rows as they are tested, float64, (rows, n)."""

    def scores(self, table: EmbeddingTable, trials: Trials) -> np.ndarray:
        """Of all trials, float64, (trials,)."""
