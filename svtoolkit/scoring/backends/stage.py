"""A step on the way of an embedding through a back end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import row_norms


@dataclass(frozen=True)
class Stage:
    """matrix (x - offset), then divided by its length if ``unit``.

    Attributes:
        offset: float64, (dimensions in,).
        matrix: float64, (dimensions out, dimensions in).
    """

    offset: np.ndarray
    matrix: np.ndarray
    unit: bool

    def apply(self, vectors: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """Vectors of shape (utterances, dimensions in) -> (utterances, dimensions out), float64.

        Args:
            names: of the utterances, for messages.

        Raises:
            UserError: nothing is left of an embedding, and it should be of length one.
        """
        found = (vectors - self.offset) @ self.matrix.T
        if self.unit:
            norms = row_norms(found)
            zero = np.flatnonzero(norms == 0)
            if len(zero):
                raise UserError(
                    f"the embedding of {names[zero[0]]!r} is that of the mean, of which the back end leaves nothing, "
                    "so that it has no score; look at its audio"
                )
            found /= norms[:, None]
        return np.asarray(found)
