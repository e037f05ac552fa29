"""Explicit gradients of convolution and BatchNorm-ReLU: autograd's to the bit, the textbook's in float64."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from reversible_material import random_map, settle_norms
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

from svtoolkit.reversible.manual_layers import (
    Convolution,
    NormRelu,
    batch_norm,
    convolution_gradient,
    is_plain,
    norm_gradient,
    normalised,
)
from svtoolkit.reversible.recomputation import ParameterGradients

torch.set_num_threads(1)

CONVOLUTIONS = {
    "3x3": {"kernel_size": 3, "padding": 1},
    "strided": {"kernel_size": 3, "padding": 1, "stride": 2},
    "uneven": {"kernel_size": (3, 1), "padding": (1, 0), "stride": (2, 1)},
    "dilated": {"kernel_size": 3, "padding": 2, "dilation": 2},
    "grouped": {"kernel_size": 3, "padding": 1, "groups": 2},
    "1x1": {"kernel_size": 1},
}
NORMS = {
    "training": ({}, True),
    "averaging": ({"momentum": None}, True),
    "frozen": ({}, False),
    "untracked": ({"track_running_stats": False}, True),
    "untracked frozen": ({"track_running_stats": False}, False),
}


def convolution(**options) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(4, 6, bias=False, **options)


def norm_layer(kind: str, channels: int = 4) -> nn.BatchNorm2d:
    options, is_training = NORMS[kind]
    return settle_norms(nn.BatchNorm2d(channels, **options)).train(is_training)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("options", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_a_convolution(options, dtype):
    layer, x = convolution(**options).to(dtype), random_map(2, 4, 7, 9, dtype=dtype).requires_grad_()
    value = layer(x)
    grad_output = random_map(*value.shape, dtype=dtype, seed=5)
    dx, dw = torch.autograd.grad(value, [x, layer.weight], grad_output)
    manual = Convolution(layer)
    with torch.no_grad():
        assert torch.equal(manual(x), value)
        assert torch.equal(manual.input_gradient(x, grad_output), dx)
        assert torch.equal(manual.weight_gradient(x, grad_output), dw)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_a_convolution_under_autocast(cast):
    layer, x = convolution(kernel_size=3, padding=1), random_map(2, 4, 5, 6).requires_grad_()
    with torch.autocast("cpu", dtype=cast, cache_enabled=False):
        value = layer(x)
        grad_output = random_map(*value.shape, seed=5).to(cast)
        dx, dw = torch.autograd.grad(value, [x, layer.weight], grad_output)
        manual = Convolution(layer)
        with torch.no_grad():
            assert torch.equal(manual(x), value)
            assert torch.equal(manual.input_gradient(x, grad_output), dx)
            assert torch.equal(manual.weight_gradient(x, grad_output).float(), dw)


def test_a_part_of_a_depthwise_convolution():
    layer = nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)
    x, rows = random_map(2, 6, 5, 6), slice(2, 5)
    with torch.no_grad():
        part = Convolution(layer, layer.weight[rows], groups=3)(x[:, rows])
        torch.testing.assert_close(part, layer(x)[:, rows], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [slice(None), slice(1, 3)], ids=["whole", "part"])
@pytest.mark.parametrize("relu", [True, False], ids=["relu", "linear"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("masks", [False, True], ids=["value", "mask"])
def test_norm_and_relu(kind, dtype, relu, rows, masks):
    layer = norm_layer(kind).to(dtype)
    x = random_map(3, 4, 5, 6, dtype=dtype)[:, rows].contiguous()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with torch.no_grad():
        norm = NormRelu(layer, x, rows, relu=relu)
    value = norm.value.clone()
    grad_output = random_map(*x.shape, dtype=dtype, seed=5)
    if masks:
        norm.reduce_to_mask()
    with torch.no_grad():
        found = norm.input_gradient(grad_output.clone())
    assert all(torch.equal(layer.state_dict()[name], tensor) for name, tensor in before.items())

    leaf = x.clone().requires_grad_()
    weight, bias = (tensor[rows].detach().requires_grad_() for tensor in (layer.weight, layer.bias))
    statistics = [None if t is None or layer.training else t[rows] for t in (layer.running_mean, layer.running_var)]
    expected = F.batch_norm(leaf, *statistics, weight, bias, statistics[0] is None, 0.1, layer.eps)
    expected = F.relu(expected) if relu else expected
    assert torch.equal(value, expected)
    assert all(map(torch.equal, found, torch.autograd.grad(expected, [leaf, weight, bias], grad_output)))


def test_the_formula_of_norm_and_relu():
    """Against the textbook's gradient of BatchNorm (Ioffe & Szegedy 2015) in float64."""
    layer, x = norm_layer("training").double(), random_map(3, 4, 5, 6, dtype=torch.float64)
    grad_output = random_map(*x.shape, dtype=torch.float64, seed=5)
    with torch.no_grad():
        norm = NormRelu(layer, x)
        value = norm.value.clone()
        dx, dw, db = norm.input_gradient(grad_output.clone())
    axes, shape, count = (0, 2, 3), (1, 4, 1, 1), 3 * 5 * 6
    weight, bias = (t.detach().view(shape) for t in (layer.weight, layer.bias))
    spread = (x.var(axes, correction=0, keepdim=True) + layer.eps).sqrt()
    centred = (x - x.mean(axes, keepdim=True)) / spread
    upstream = grad_output * (weight * centred + bias > 0)
    torch.testing.assert_close(value, (weight * centred + bias).clamp(min=0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(db, upstream.sum(axes), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dw, (upstream * centred).sum(axes), rtol=1e-12, atol=1e-12)
    inner = upstream - upstream.sum(axes, keepdim=True) / count
    inner = inner - centred * (upstream * centred).sum(axes, keepdim=True) / count
    torch.testing.assert_close(dx, weight / spread * inner, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("masks", [False, True], ids=["value", "mask"])
def test_grad_output_is_overwritten_where_relu_was_zero_and_left_without_relu(masks):
    layer, x = norm_layer("training"), random_map(3, 4, 5, 6)
    for relu in (True, False):
        with torch.no_grad():
            norm, grad_output = NormRelu(layer, x, relu=relu), torch.ones_like(x)
            dead = norm.value <= 0
            if masks:
                norm.reduce_to_mask()
            norm.input_gradient(grad_output)
        assert torch.equal(grad_output == 0, dead if relu else torch.zeros_like(dead))


def test_a_value_that_was_taken_is_gone_and_its_own_to_modify():
    layer, x = norm_layer("training"), random_map(3, 4, 5, 6)
    with torch.no_grad():
        norm, untouched = (NormRelu(layer, x, relu=False) for _ in range(2))
        norm.take().zero_()
        with pytest.raises(AssertionError):
            _ = norm.value
        found, expected = (each.input_gradient(torch.ones_like(x)) for each in (norm, untouched))
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("kind", NORMS)
def test_tracked_batch_norm_is_the_layer(kind, steps):
    """All but the count of batches, which belongs to whoever normalises in parts."""
    layer, other = norm_layer(kind), norm_layer(kind)
    for seed in range(steps):
        x = random_map(3, 4, 5, 6, seed=seed)
        value = batch_norm(layer, x, layer.weight, layer.bias, tracked=layer.track_running_stats)
        if layer.training and layer.track_running_stats:
            layer.num_batches_tracked.add_(1)
        assert torch.equal(value, other(x))
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in layer.state_dict().items())


@pytest.mark.parametrize("kind", NORMS)
def test_once_more_means_the_same_value_and_no_new_statistics(kind):
    layer, x = norm_layer(kind), random_map(3, 4, 5, 6)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    value = normalised(layer, x)
    assert all(torch.equal(layer.state_dict()[name], tensor) for name, tensor in before.items())
    assert torch.equal(value, layer(x))


@pytest.mark.parametrize("frugal", [False, True])
@pytest.mark.parametrize("frozen", [(), ("conv",), ("norm",)], ids=str)
def test_norm_relu_and_convolution_together(frugal, frozen):
    norm_of, conv, x = norm_layer("training"), convolution(kernel_size=3, padding=1), random_map(3, 4, 5, 6)
    names = {"conv": [conv.weight], "norm": [norm_of.weight, norm_of.bias]}
    wanted = [parameter for name, group in names.items() if name not in frozen for parameter in group]
    leaf = x.clone().requires_grad_()
    value = conv(F.relu(norm_of(leaf)))
    grad_output = random_map(*value.shape, seed=5)
    dx, *expected = torch.autograd.grad(value, [leaf, *wanted], grad_output)
    gradients = ParameterGradients(wanted)
    with torch.no_grad():
        norm = NormRelu(norm_of, x)
        downstream = convolution_gradient(norm, conv, grad_output, gradients, frugal=frugal)
        found = norm_gradient(norm, downstream, gradients)
    assert torch.equal(found, dx)
    assert all(map(torch.equal, gradients.in_order(), expected))


def with_hook(register: str) -> nn.Module:
    layer = convolution(kernel_size=1)
    getattr(layer, register)(lambda *_: None)
    return layer


def with_other_forward() -> nn.Module:
    layer = convolution(kernel_size=1)
    layer.forward = lambda x: 2 * F.conv2d(x, layer.weight)
    return layer


HOOKS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
)
UNUSUAL = {
    "bias": lambda: nn.Conv2d(4, 4, 1),
    "reflecting": lambda: convolution(kernel_size=3, padding=1, padding_mode="reflect"),
    "one-dimensional": lambda: nn.Conv1d(4, 4, 1, bias=False),
    "parametrised": lambda: parametrizations.weight_norm(convolution(kernel_size=1)),
    "weight norm": lambda: weight_norm(convolution(kernel_size=1)),
    "no affine": lambda: nn.BatchNorm2d(4, affine=False),
    "synchronised": lambda: nn.SyncBatchNorm(4),
    "other forward": with_other_forward,
} | {hook: partial(with_hook, hook) for hook in HOOKS}


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("make", UNUSUAL.values(), ids=UNUSUAL)
def test_what_calling_the_kernels_would_skip_is_not_plain(make):
    assert is_plain(convolution(kernel_size=1), nn.BatchNorm2d(4))
    assert not is_plain(convolution(kernel_size=1), make())
