"""Convolution by transforms against the sum that defines it, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.augmentation import convolution
from svtoolkit.augmentation.convolution import convolve


def has_small_factors_alone(number: int) -> bool:
    for factor in (2, 3, 5):
        while number % factor == 0:
            number //= factor
    return number == 1


def test_transforms_are_of_the_next_even_length_without_large_factors(monkeypatch):
    lengths = []
    monkeypatch.setattr(
        convolution, "_multiply_on_cpu", lambda s, k, size: lengths.append(size) or torch.zeros(1, size)
    )
    needed = [1, 2, 3, 7, 45, 97, 121, 1001, 5400, 5401, 32_241, 48_239]
    for samples in needed:
        convolve(torch.zeros(1, samples), torch.ones(1, 1))
    good = [n for n in range(2, 50_000, 2) if has_small_factors_alone(n)]
    assert lengths == [next(n for n in good if n >= samples) for samples in needed]
    assert lengths[-1] == 48_600


def directly(signal: np.ndarray, kernel: np.ndarray, delay: int) -> np.ndarray:
    full = np.convolve(signal.astype(np.float64), kernel.astype(np.float64))
    return np.concatenate([full, np.zeros(delay + len(signal))])[delay : delay + len(signal)]


@given(
    st.integers(1, 400), st.integers(1, 600), st.integers(1, 4), st.booleans(), st.floats(0, 1), st.integers(0, 2**32)
)
@settings(max_examples=150, deadline=None)
def test_convolution_is_the_sum_that_defines_it(samples, taps, rows, shared_kernel, delay_share, seed):
    rng = np.random.default_rng(seed)
    delay = int(delay_share * (taps - 1))
    signals = rng.standard_normal((rows, samples)).astype(np.float32)
    kernels = rng.standard_normal((1 if shared_kernel else rows, taps)).astype(np.float32)
    convolved = convolve(torch.from_numpy(signals), torch.from_numpy(kernels), delay)
    assert convolved.dtype == torch.float32
    assert convolved.shape == (rows, samples)
    for row in range(rows):
        expected = directly(signals[row], kernels[0 if shared_kernel else row], delay)
        np.testing.assert_allclose(convolved[row].numpy(), expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("samples", [100, 32_240])
def test_both_transforms_agree(samples, monkeypatch):
    """That of the CPU and that of other devices."""
    generator = torch.Generator().manual_seed(0)
    signals = torch.randn(3, samples, generator=generator)
    kernels = torch.randn(3, samples // 2, generator=generator) / samples**0.5
    on_cpu = convolve(signals, kernels)
    monkeypatch.setattr(convolution, "_multiply_on_cpu", convolution._multiply_on_device)
    on_device = convolve(signals, kernels)
    assert not torch.equal(on_cpu, torch.zeros_like(on_cpu))
    torch.testing.assert_close(on_device, on_cpu, rtol=0, atol=1e-5)


@pytest.mark.parametrize("samples", [100, 32_240])
def test_a_signal_alone_becomes_what_it_does_among_others(samples):
    generator = torch.Generator().manual_seed(1)
    signals = torch.randn(5, samples, generator=generator)
    kernels = torch.randn(5, samples // 2, generator=generator) / samples**0.5
    together = convolve(signals, kernels)
    for row in range(5):
        alone = convolve(signals[row : row + 1], kernels[row : row + 1])
        torch.testing.assert_close(alone, together[row : row + 1], rtol=0, atol=1e-5)


def test_a_kernel_of_one_tap_is_a_factor():
    signals = torch.arange(12.0).reshape(2, 6)
    torch.testing.assert_close(convolve(signals, torch.tensor([[2.0], [-1.0]])), signals * torch.tensor([[2.0], [-1]]))
