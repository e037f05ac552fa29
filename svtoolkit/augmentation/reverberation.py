"""Rooms: an impulse response made ready, and speech sent through it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from svtoolkit.augmentation.convolution import convolve
from svtoolkit.augmentation.mixing import SILENCE, level

LONGEST_RESPONSE = 1.0
"""Seconds of a response, from its direct path on, that are used. A simulated room rarely rings longer; of a cathedral's
7 s the cut leaves out a seventh of the energy, and a third of the arithmetic for a crop of 2 s."""

DECAYED = 1e-6
"""Share of the energy, -60 dB, that may be left behind the end of a response: the decay that defines RT60."""


def find_response(recording: np.ndarray, sample_rate: int) -> slice:
    """The samples of a recorded room impulse response that are used, to be made ready by ``normalise_response``.

    Taps before the direct path, its strongest peak, are dropped, so that speech is not delayed. Behind it, the response
    ends where the energy still to come (Schroeder's backward integral, J. Acoust. Soc. Am. 37, 1965) is 60 dB below
    the whole, and after LONGEST_RESPONSE at the latest.

    Args:
        recording: (samples,).
        sample_rate: in Hz.

    Raises:
        ValueError: a response that is empty, silent or not finite.
    """
    magnitude = np.abs(recording)
    peak = int(magnitude.argmax()) if len(recording) else 0
    if not len(recording) or not 0 < magnitude[peak] < np.inf:  # argmax finds a NaN, too
        raise ValueError("the impulse response is empty, silent or not finite")
    tail = recording[peak : peak + max(1, round(LONGEST_RESPONSE * sample_rate))] / magnitude[peak]
    to_come = np.cumsum(np.square(tail[::-1], dtype=np.float64))  # from the end, so increasing
    return slice(peak, peak + len(tail) - int(np.searchsorted(to_come, DECAYED * to_come[-1])))


def normalise_response(response: np.ndarray) -> np.ndarray:
    """What ``find_response`` found, at energy 1: (taps,) that begin with the direct path -> float32, (taps,)."""
    kept = response / np.abs(response[0])
    return (kept / np.linalg.norm(kept)).astype(np.float32)


def reverberate(waveforms: Tensor, responses: Tensor) -> Tensor:
    """Speech in a room, at the power that it had outside, and as early: the first tap is the direct path.

    Args:
        waveforms: float32, (batch, samples).
        responses: float32, (batch, taps), from ``normalise_response``; shorter ones filled up with zeros.

    Returns:
        float32, (batch, samples): what rings on after the last sample is cut off.
    """
    reverberant = convolve(waveforms, responses)
    dry, wet = level(waveforms), level(reverberant)
    return reverberant * torch.where(wet > SILENCE, dry / wet, 1.0)
