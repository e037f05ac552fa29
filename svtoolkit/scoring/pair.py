"""The score of one pair: a known speaker's embeddings and another one."""

from __future__ import annotations

import numpy as np

from svtoolkit.errors import UserError


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Cosine of two embeddings of shape (dimension,), in float64.

    Raises:
        UserError: one is zero in every dimension.
    """
    a, b = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    if lengths == 0:
        raise UserError("an embedding is zero in every dimension, and a cosine with it does not exist; use other audio")
    return float(a @ b / lengths)


def enrolment_vector(embeddings: np.ndarray) -> np.ndarray:
    """One vector for a speaker: the mean of his embeddings, each of length one; of a single embedding itself.

    Args:
        embeddings: shape (recordings, dimension).
    """
    if len(embeddings) == 1:
        return embeddings[0]
    vectors = embeddings.astype(np.float64)
    return np.asarray((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).mean(axis=0))
