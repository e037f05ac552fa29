"""What tests of the synthesiser and of the corpus that it speaks have in common."""

from __future__ import annotations

import numpy as np
import pytest

try:
    import espeakng_loader
except ImportError:
    espeakng_loader = None

needs_espeak = pytest.mark.skipif(espeakng_loader is None, reason="espeakng-loader (extra demo) is not installed")

SENTENCE = "Many more men may win money on a rainy morning."


def measure_pitch(samples: np.ndarray, rate: int) -> float:
    """Median over loud frames of the lag (60 to 400 Hz) with the highest normalised autocorrelation, in Hz."""
    width, pitches = rate // 20, []
    threshold = np.sqrt(np.mean(samples**2))
    for start in range(0, len(samples) - 2 * width, rate // 50):
        frame = samples[start : start + width]
        if np.sqrt(np.mean(frame**2)) < threshold:
            continue
        lags = np.arange(rate // 400, rate // 60)
        shifted = np.stack([samples[start + lag : start + lag + width] for lag in lags])
        score = shifted @ frame / np.linalg.norm(shifted, axis=1)
        # The first of the peaks that are about as high: their multiples fit a periodic signal as well.
        pitches.append(rate / lags[np.flatnonzero(score > 0.95 * score.max())[0]])
    return float(np.median(pitches))
