"""Whitening within speakers: what varies between recordings of one speaker counts less.

WCCN: A. O. Hatch, S. Kajarekar, A. Stolcke, "Within-class covariance normalization for SVM-based speaker recognition",
Interspeech 2006.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable, require_embeddings


class Whitening:
    """Embeddings less their mean, each dimension of unit deviation, times a root of the inverse covariance in speakers.

    Cosines of whitened embeddings do not depend on the scale of any dimension, nor on which root is taken.

    Args:
        table: embeddings of training speakers; those of utterances outside ``utt2spk`` are left out.
        utt2spk: utterance -> speaker.

    Raises:
        UserError: utterances without an embedding, fewer of them beyond one a speaker than dimensions, a dimension that
            is the same in all.
    """

    def __init__(self, table: EmbeddingTable, utt2spk: Mapping[str, str]) -> None:
        require_embeddings(utt2spk, table)
        matrix = table.matrix[table.lookup(list(utt2spk))].astype(np.float64)
        self.mean, self.std = matrix.mean(axis=0), matrix.std(axis=0)
        _, speaker = np.unique(list(utt2spk.values()), return_inverse=True)
        counts = np.bincount(speaker)
        dimension = table.dimension
        if len(matrix) - len(counts) < dimension:
            raise UserError(
                f"{len(matrix)} utterances of {len(counts)} speakers cannot give a covariance within speakers of "
                f"{dimension} dimensions; expected {dimension} utterances more than speakers"
            )
        if not self.std.all():
            raise UserError(f"dimension {np.argmin(self.std)} of the embeddings never changes, and cannot be whitened")
        rows = (matrix - self.mean) / self.std
        means = np.zeros((len(counts), dimension))
        np.add.at(means, speaker, rows)
        within = rows - (means / counts[:, None])[speaker]
        try:
            self.root = np.linalg.cholesky(np.linalg.inv(within.T @ within / len(rows)))
        except np.linalg.LinAlgError as error:
            raise UserError(
                "the covariance of the embeddings within speakers has no inverse; take more or other speakers"
            ) from error

    def apply(self, table: EmbeddingTable) -> EmbeddingTable:
        """The whitened embeddings, float64.

        Raises:
            UserError: of another dimension.
        """
        if table.dimension != len(self.mean):
            raise UserError(
                f"the embeddings have {table.dimension} dimensions, those that whiten them {len(self.mean)}; extract "
                "both with the same model"
            )
        return EmbeddingTable(table.utterances, (table.matrix - self.mean) / self.std @ self.root)
