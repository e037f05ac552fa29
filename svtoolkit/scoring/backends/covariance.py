"""Covariances of few vectors, shrunk towards a multiple of the identity; turns that make two of them diagonal."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh


def ledoit_wolf(covariance: np.ndarray, fourth: float, count: int) -> float:
    """How far to shrink (1 - s) C + s tr(C)/d I, so that the expected squared error is least.

    O. Ledoit, M. Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", Journal of
    Multivariate Analysis 88, 2004, lemma 3.2 to 3.4.

    Args:
        covariance: mean of the products of ``count`` vectors about a known mean, (d, d).
        fourth: sum of the fourth powers of their lengths.

    Returns:
        s, from 0 to 1.
    """
    size = len(covariance)
    squares = float((covariance**2).sum())
    spread = squares - float(np.trace(covariance)) ** 2 / size
    noise = max(0.0, fourth / count - squares) / count
    return min(1.0, noise / spread) if spread > 0 else 1.0


def shrink(covariance: np.ndarray, share: float, scale: float | None = None) -> np.ndarray:
    """(1 - share) C + share scale I; without ``scale`` the mean of the variances."""
    scale = float(np.trace(covariance)) / len(covariance) if scale is None else scale
    return np.asarray((1 - share) * covariance + share * scale * np.eye(len(covariance)))


def diagonalise(between: np.ndarray, within: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T with T within T' = I and T between T' = diag(v), v descending, and v; the largest of a row of T is positive."""
    values, vectors = eigh(between, within)
    turns = vectors.T[::-1]
    largest = np.take_along_axis(turns, np.abs(turns).argmax(axis=1)[:, None], axis=1)
    return np.ascontiguousarray(turns * np.sign(largest)), values[::-1].copy()


def whitening(covariance: np.ndarray) -> np.ndarray:
    """The symmetric inverse square root.

    Raises:
        numpy.linalg.LinAlgError: there is none.
    """
    values, vectors = np.linalg.eigh(covariance)
    if values[0] <= values[-1] * len(values) * np.finfo(np.float64).eps:
        raise np.linalg.LinAlgError("the covariance has no inverse")
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)
