"""Triangular filters as toolkits define them: each function makes float64 (points of the spectrum, filters).

``points`` are the frequencies, Hz, of the points of a power spectrum; the triangles of a bank stand between
``low`` and ``high``, Hz. They differ in the scale, in what is linear along a side, and in the height.
"""

from __future__ import annotations

import numpy as np


def htk_filters(points: np.ndarray, low: float, high: float, filters: int) -> np.ndarray:
    """Equally spaced in 2595 log10(1 + f / 700), linear in Hz, of height 1 (torchaudio.transforms.MelScale)."""
    return _triangles(points, _htk_to_hertz(np.linspace(_htk(low), _htk(high), filters + 2)))


def htk_filters_in_mel(points: np.ndarray, low: float, high: float, filters: int) -> np.ndarray:
    """The same, linear in mel: the triangles of TensorFlow, whose lowest point counts for nothing."""
    weights = _triangles(_htk(points), np.linspace(_htk(low), _htk(high), filters + 2))
    weights[0] = 0.0
    return weights


def speechbrain_filters(points: np.ndarray, low: float, high: float, filters: int) -> np.ndarray:
    """Of ``htk_filters``, but both sides are as wide as the left one (speechbrain/processing/features.py)."""
    edges = _htk_to_hertz(np.linspace(_htk(low), _htk(high), filters + 2))
    slope = (points[:, np.newaxis] - edges[1:-1]) / (edges[1:-1] - edges[:-2])
    return np.maximum(0.0, 1.0 - np.abs(slope))


def slaney_filters(points: np.ndarray, low: float, high: float, filters: int) -> np.ndarray:
    """Equally spaced in Slaney's scale, linear in Hz, of area 1 (librosa.filters.mel with its defaults)."""
    edges = _slaney_to_hertz(np.linspace(_slaney(low), _slaney(high), filters + 2))
    return _triangles(points, edges) * (2.0 / (edges[2:] - edges[:-2]))


def _triangles(points: np.ndarray, edges: np.ndarray) -> np.ndarray:
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (points[:, np.newaxis] - left) / (centre - left)
    falling = (right - points[:, np.newaxis]) / (right - centre)
    return np.maximum(0.0, np.minimum(rising, falling))


def _htk(hertz: float | np.ndarray) -> np.ndarray:
    return 2595.0 * np.log10(1.0 + np.asarray(hertz) / 700.0)


def _htk_to_hertz(mel: np.ndarray) -> np.ndarray:
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


# Slaney's Auditory Toolbox: 200 / 3 Hz a step up to 1000 Hz, from there on 27 steps to 6.4 times as much.
_LINEAR_STEP, _LOG_FROM, _LOG_STEP = 200.0 / 3.0, 1000.0, np.log(6.4) / 27.0


def _slaney(hertz: float | np.ndarray) -> np.ndarray:
    hertz = np.asarray(hertz, dtype=np.float64)
    above = np.log(np.maximum(hertz, _LOG_FROM) / _LOG_FROM) / _LOG_STEP
    return np.minimum(hertz, _LOG_FROM) / _LINEAR_STEP + above


def _slaney_to_hertz(mel: np.ndarray) -> np.ndarray:
    bend = _LOG_FROM / _LINEAR_STEP
    return np.where(mel < bend, mel * _LINEAR_STEP, _LOG_FROM * np.exp(_LOG_STEP * np.maximum(mel - bend, 0.0)))
