"""Linear convolution of many signals at once by real Fourier transforms of lengths that are quick to transform."""

from __future__ import annotations

import torch
from scipy.fft import next_fast_len
from torch import Tensor


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
    needed = max(samples + kernels.shape[-1] - 1 - delay, samples + delay)
    size = 2 * next_fast_len((needed + 1) // 2, real=True)  # real transforms of odd lengths are slower
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
