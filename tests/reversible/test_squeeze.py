"""Squeeze: no number lost, the order of i-RevNet, and its inverse as its gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reversible_material import random_map

from svtoolkit.reversible import squeeze, unsqueeze

torch.set_num_threads(1)

SIZES = [(6, 8), (5, 8), (6, 7), (5, 7), (1, 1), (2, 1)]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))
def test_the_inverse_brings_everything_back(batch, channels, bins, frames):
    x = random_map(batch, channels, bins, frames)
    y = squeeze(x)
    assert y.shape == (batch, 4 * channels, -(-bins // 2), -(-frames // 2))
    assert torch.equal(unsqueeze(y, bins, frames), x)


@pytest.mark.parametrize(("bins", "frames"), SIZES)
def test_every_number_has_its_place(bins, frames):
    """Channel 4 * c + 2 * i + j is the map at rows of parity i and columns of parity j, zeros past the end."""
    x = random_map(2, 3, bins, frames)
    y = squeeze(x)
    for channel in range(12):
        for row in range(y.shape[2]):
            for column in range(y.shape[3]):
                source = (2 * row + channel % 4 // 2, 2 * column + channel % 2)
                is_inside = source[0] < bins and source[1] < frames
                expected = x[:, channel // 4, source[0], source[1]] if is_inside else torch.zeros(2)
                assert torch.equal(y[:, channel, row, column], expected)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_an_even_map_keeps_its_volume(layout):
    x = random_map(2, 3, 6, 8).contiguous(memory_format=layout)
    y = squeeze(x)
    assert y.numel() == x.numel()
    assert torch.equal(y.flatten().sort().values, x.flatten().sort().values)


@pytest.mark.parametrize(("bins", "frames"), SIZES)
def test_the_gradient_is_the_inverse(bins, frames):
    x = random_map(2, 3, bins, frames, dtype=torch.float64).requires_grad_()
    y = squeeze(x)
    grad_output = random_map(*y.shape, dtype=torch.float64, seed=5)
    (gradient,) = torch.autograd.grad(y, x, grad_output)
    assert torch.equal(gradient, unsqueeze(grad_output, bins, frames))
    assert torch.autograd.gradcheck(squeeze, (x,))
