"""Linear convolution of many signals at once by real Fourier transforms of lengths that are quick to transform."""

from __future__ import annotations

from functools import lru_cache

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
    multiply = _multiply_on_cpu if signals.device.type == "cpu" else _multiply_on_device
    return multiply(signals, kernels, size)[..., delay : delay + samples]


def _multiply_on_cpu(signals: Tensor, kernels: Tensor, size: int) -> Tensor:
    """Circular convolution of ``size`` samples, (batch, size)."""
    rows = len(signals)
    both = torch.zeros(rows + len(kernels), size)
    both[:rows, : signals.shape[-1]] = signals
    both[rows:, : kernels.shape[-1]] = kernels
    spectra = torch.fft.rfft(both)
    product = spectra[:rows] * spectra[rows:]
    # MKL takes longer for a single row than for two, and rounds it otherwise: the result must not depend on the batch.
    return torch.fft.irfft(product.expand(2, -1) if rows == 1 else product, size)[:rows]


def _multiply_on_device(signals: Tensor, kernels: Tensor, size: int) -> Tensor:
    spectra = torch.fft.rfft(signals, size)
    spectra *= torch.fft.rfft(kernels, size)
    return torch.fft.irfft(spectra, size)
