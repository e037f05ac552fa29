"""Rooms: an impulse response made ready, and speech sent through it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from svtoolkit.data.augmentation.convolution import convolve
from svtoolkit.data.augmentation.mixing import SILENCE, level

LONGEST_RESPONSE = 1.0
"""Seconds of a response, from its direct path on, that are used. A simulated room rarely rings longer; of a cathedral's
7 s the cut leaves out a seventh of the energy, and a third of the arithmetic for a crop of 2 s."""

DECAYED = 1e-6
"""Share of the energy, -60 dB, that may be left behind the end of a response: the decay that defines RT60."""


def trim_response(response: np.ndarray, sample_rate: int) -> np.ndarray:
    """A room impulse response made ready for ``reverberate``.

    Taps before the direct path, its strongest peak, are dropped, so that speech is not delayed. Behind it, the response
    ends where the energy still to come (Schroeder's backward integral, J. Acoust. Soc. Am. 37, 1965) is 60 dB below
    the whole, and after LONGEST_RESPONSE at the latest.

    Args:
        response: (samples,), as recorded.
        sample_rate: in Hz.

    Returns:
        float32, (taps,), of energy 1, its first tap the direct path.

    Raises:
        ValueError: a response that is empty, silent or not finite.
    """
    return normalise_response(response[find_response(response, sample_rate)])


def find_response(response: np.ndarray, sample_rate: int) -> slice:
    """Where in a recording ``trim_response`` finds what it keeps; arguments and errors as there."""
    magnitude = np.abs(response)
    peak = int(magnitude.argmax()) if len(response) else 0
    if not len(response) or not 0 < magnitude[peak] < np.inf:  # argmax finds a NaN, too
        raise ValueError("the impulse response is empty, silent or not finite")
    tail = response[peak : peak + max(1, round(LONGEST_RESPONSE * sample_rate))] / magnitude[peak]
    to_come = np.cumsum(np.square(tail[::-1], dtype=np.float64))  # from the end, so increasing
    return slice(peak, peak + len(tail) - int(np.searchsorted(to_come, DECAYED * to_come[-1])))


def normalise_response(response: np.ndarray) -> np.ndarray:
    """A response that begins with its direct path, at energy 1: float32, (taps,)."""
    kept = response / np.abs(response[0])
    return (kept / np.linalg.norm(kept)).astype(np.float32)


def reverberate(waveforms: Tensor, responses: Tensor) -> Tensor:
    """Speech in a room, at the power that it had outside, and as early: the first tap is the direct path.

    Args:
        waveforms: float32, (batch, samples).
        responses: float32, (batch, taps), from ``trim_response``; shorter ones filled up with zeros.

    Returns:
        float32, (batch, samples): what rings on after the last sample is cut off.
    """
    reverberant = convolve(waveforms, responses)
    dry, wet = level(waveforms), level(reverberant)
    return reverberant * torch.where(wet > SILENCE, dry / wet, 1.0)
