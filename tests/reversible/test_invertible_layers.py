"""Layers that are inverted: norm, leaky ReLU, coupled convolution, poolings; against torch, and back again."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from reversible_material import distance, random_map, settle_norms
from torch import nn

from svtoolkit.reversible import (
    BatchPooling,
    BatchUnpooling,
    ChannelPooling,
    CoupledConvolution,
    InvertibleBatchNorm2d,
    InvertibleLeakyReLU,
)
from svtoolkit.reversible.recomputation import ParameterGradients

CHANNELS = 6
FLOAT64 = {"dtype": torch.float64}


def norm_of(floor: float = 0.1, *, training: bool = True) -> InvertibleBatchNorm2d:
    """With a weight of every sign."""
    layer = settle_norms(InvertibleBatchNorm2d(CHANNELS, floor)).double().train(training)
    layer.weight.data.copy_(torch.tensor([1.0, -0.5, 0.0, 0.02, -0.3, 2.0]))
    return layer


@pytest.mark.parametrize("training", [True, False])
def test_a_norm_is_that_of_torch_with_its_gain(training):
    layer, x = norm_of(training=training), random_map(3, CHANNELS, 5, 7, **FLOAT64)
    plain = nn.BatchNorm2d(CHANNELS).double().train(training)
    plain.load_state_dict(layer.state_dict())
    plain.weight.data = layer.weight.data.abs() + 0.1
    assert torch.equal(layer(x), plain(x))
    assert torch.equal(layer.running_mean, plain.running_mean)
    assert torch.equal(layer.running_var, plain.running_var)
    assert layer.num_batches_tracked == plain.num_batches_tracked == int(training)


def test_a_fresh_norm_has_gain_1():
    assert torch.equal(InvertibleBatchNorm2d(4, 0.25).gain(), torch.ones(4))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_norm_is_inverted_and_differentiated(training, layout):
    """Input and gradients from result and statistics, as autograd has them; a weight of 0 has a gain, and no slope."""
    layer = norm_of(training=training)
    x = random_map(3, CHANNELS, 5, 7, **FLOAT64).contiguous(memory_format=layout)
    leaf = x.clone().requires_grad_()
    value = layer(leaf)
    upstream = random_map(*value.shape, seed=5, **FLOAT64)
    expected = torch.autograd.grad(value, [leaf, layer.weight, layer.bias], upstream)
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    layer.load_state_dict({**layer.state_dict(), **({} if training else before)})
    gradients = ParameterGradients([layer.weight, layer.bias])
    with torch.no_grad():
        y, statistics = layer.evaluate(x)
        again = layer.again(x, statistics, torch.empty_like(x))
        dx = layer.gradient_(y, upstream.clone(), statistics, gradients)
        back = layer.inverse_(y.clone(), statistics)
    assert torch.equal(y, value)
    assert distance(again, value) < 1e-14
    assert distance(back, x) < 1e-13
    for found, wanted in zip([dx, *gradients.in_order()], expected, strict=True):
        assert distance(found, wanted) < 1e-12
    assert gradients.in_order()[0][2] == 0
    assert all(torch.equal(buffer, before[name]) for name, buffer in layer.named_buffers())


def test_the_floor_bounds_what_inversion_makes_of_noise():
    """A channel whose weight is 0 still comes back; without a floor nothing would be left of it."""
    layer, x = norm_of(0.1), random_map(3, CHANNELS, 5, 7)
    layer.float()
    with torch.no_grad():
        y, statistics = layer.evaluate(x)
        back = layer.inverse_(y, statistics)
    assert distance(back[:, 2], x[:, 2]) < 2e-6


@pytest.mark.parametrize("floor", [0.0, -0.1, 1.5])
def test_a_floor_out_of_range_is_refused(floor):
    with pytest.raises(ValueError, match=f"norm_floor is {floor}, expected a number above 0, 1 at most"):
        InvertibleBatchNorm2d(4, floor)


@pytest.mark.parametrize("slope", [0.01, 0.3, 1.0])
def test_leaky_relu_there_and_back(slope):
    layer, x = InvertibleLeakyReLU(slope), random_map(3, 5, 4, 4, **FLOAT64)
    leaf = x.clone().requires_grad_()
    value = layer(leaf * 1)
    assert torch.equal(value, F.leaky_relu(x, slope))
    (expected,) = torch.autograd.grad(value, leaf, torch.ones_like(x))
    y = value.detach()
    assert torch.equal(layer.gradient_(y, torch.ones_like(x)), expected)
    assert distance(layer.inverse_(y), x) < 1e-15


@pytest.mark.parametrize("slope", [0.0, -0.1, 1.1])
def test_a_slope_out_of_range_is_refused(slope):
    with pytest.raises(ValueError, match=f"slope is {slope}, expected a number above 0, 1 at most"):
        InvertibleLeakyReLU(slope)


@pytest.mark.parametrize("channels", [2, 5, 8])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_coupled_convolution_is_undone(channels, is_known):
    """Result and gradient become input and its gradient; an input that is known is taken as it is."""
    torch.manual_seed(0)
    layer, x = CoupledConvolution(channels).double(), random_map(9, channels, 5, 4, **FLOAT64)
    leaf = x.clone().requires_grad_()
    value = layer(leaf)
    upstream = random_map(*value.shape, seed=5, **FLOAT64)
    expected = torch.autograd.grad(value, [leaf, *layer.parameters()], upstream)
    gradients, y = ParameterGradients(layer.parameters()), value.detach().clone()

    def refill(out: torch.Tensor, rows: slice) -> None:
        out.copy_(x[:, rows])

    with torch.no_grad():
        assert torch.equal(layer.evaluate_(x.clone()), value)
        assert distance(layer.inverse_(y.clone()), x) < 1e-14
        layer.undo_(y, upstream, gradients, refill if is_known else None)
    assert torch.equal(y, x) if is_known else distance(y, x) < 1e-14
    for found, wanted in zip([upstream, *gradients.in_order()], expected, strict=True):
        assert distance(found, wanted) < 1e-13


def test_one_channel_cannot_be_coupled():
    with pytest.raises(ValueError, match="needs 2 channels or more, and has 1"):
        CoupledConvolution(1)


@pytest.mark.parametrize("size", [(80, 200), (5, 7), (4, 3), (1, 1)])
@pytest.mark.parametrize("pooling", [ChannelPooling(), BatchPooling()])
def test_poolings_lose_nothing(pooling, size):
    x = random_map(2, 3, *size)
    y = pooling(x)
    assert y.numel() == 6 * (size[0] + size[0] % 2) * (size[1] + size[1] % 2)
    assert tuple(y.shape[2:]) == ((size[0] + 1) // 2, (size[1] + 1) // 2)
    assert torch.equal(pooling.inverse(y, *size), x)


def test_batch_pooling_makes_dilated_convolutions():
    """Of maps that lie next to each other, utterance by utterance."""
    x, weight = random_map(2, 3, 6, 8, **FLOAT64), random_map(3, 3, 3, 3, seed=1, **FLOAT64)
    pooled = BatchPooling()(x)
    assert torch.equal(pooled[4:], BatchPooling()(x[1:]))
    found = BatchUnpooling()(F.conv2d(pooled, weight, padding=1))
    assert distance(found, F.conv2d(x, weight, padding=2, dilation=2)) < 1e-14


def test_batch_unpooling_is_undone():
    y = random_map(8, 3, 3, 5)
    joined = BatchUnpooling()(y)
    assert joined.shape == (2, 3, 6, 10)
    assert torch.equal(BatchUnpooling().inverse(joined, 3, 5), y)
