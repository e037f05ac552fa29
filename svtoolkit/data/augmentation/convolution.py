"""Linear convolution of many signals at once by real Fourier transforms of lengths that are quick to transform."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor


@lru_cache(maxsize=4096)
def fast_length(samples: int) -> int:
    """The smallest even length of at least so many samples with no prime factor above 5 (1 for a single sample)."""
    best = 1 << (samples - 1).bit_length()
    power_of_five = 1
    while power_of_five < best:
        odd = power_of_five
        while odd < best:
            doublings = (-(-samples // odd) - 1).bit_length()
            best = min(best, odd << max(1, doublings))
            odd *= 3
        power_of_five *= 5
    return best


def convolve(signals: Tensor, kernels: Tensor, delay: int = 0) -> Tensor:
    """As many samples of signal * kernel as the signal has, from sample ``delay`` of the full convolution on.

    Args:
        signals: float32, (batch, samples).
        kernels: float32, (batch, taps), or (1, taps) for all signals.
        delay: samples left out at the beginning: with (taps - 1) / 2 a symmetric kernel shifts nothing.

    Returns:
        float32, (batch, samples), on the device of the signals; what lies before and after them counts as 0.
    """
    samples = signals.shape[-1]
    kernels = kernels[..., : samples + delay]  # later taps reach no sample that is returned
    # What the circular convolution wraps around may fall on the first `delay` samples, which are left out.
    size = fast_length(max(samples + kernels.shape[-1] - 1 - delay, samples + delay))
    # On a CPU NumPy's transform of a row is no slower than torch's with MKL, and on some twice as fast.
    multiply = _multiply_numpy if signals.device.type == "cpu" else _multiply_torch
    return multiply(signals, kernels, size)[..., delay : delay + samples]


def _multiply_numpy(signals: Tensor, kernels: Tensor, size: int) -> Tensor:
    """Circular convolution of ``size`` samples, (batch, size)."""
    spectra = np.fft.rfft(signals.numpy(), size)
    spectra *= np.fft.rfft(kernels.numpy(), size)
    return torch.from_numpy(np.fft.irfft(spectra, size).astype(np.float32, copy=False))  # NumPy 1 gives float64


def _multiply_torch(signals: Tensor, kernels: Tensor, size: int) -> Tensor:
    spectra = torch.fft.rfft(signals, size)
    spectra *= torch.fft.rfft(kernels, size)
    return torch.fft.irfft(spectra, size)
