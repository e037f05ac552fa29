"""What an embedding says of its recording."""

from __future__ import annotations

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable, require_embeddings, row_norms
from svtoolkit.scoring.normalisation import cohort_statistics
from svtoolkit.scoring.quality.measured import Measured


def magnitude(measured: Measured) -> np.ndarray:
    """Length of the embedding as the network gives it: margins of the training make that of clear speech longer."""
    table, rows = _rows(measured, "magnitude")
    return row_norms(table.matrix[rows])


def cohort_mean(measured: Measured) -> np.ndarray:
    """Mean cosine to the closest members of the cohort, as AS-Norm takes it: poor recordings are close to many."""
    if measured.cohort is None:
        raise UserError("cohort_mean is measured against a cohort; give cohort=FILE.scp, or other measures")
    table, rows = _rows(measured, "cohort_mean")
    return cohort_statistics(table, rows, measured.cohort, top_n=measured.closest).mean


def _rows(measured: Measured, name: str) -> tuple[EmbeddingTable, np.ndarray]:
    """The embeddings, and where in them those of the utterances are."""
    if measured.table is None:
        raise UserError(f"{name} is measured of embeddings; give embeddings=FILE.scp, or other measures")
    require_embeddings(measured.names, measured.table)
    return measured.table, measured.table.lookup(measured.names)
