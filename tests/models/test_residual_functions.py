"""Residual functions: their formulas in float64, and manual gradients that are autograd's to the bit."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from reversible_material import (
    FUNCTIONS,
    assert_manual_is_autograd,
    by_autograd,
    distance,
    norms_of,
    random_map,
    settle_norms,
)
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from svtoolkit.models.residual_functions import (
    DepthFirstFunction,
    PreActivationFunction,
    basic_function,
    bottleneck_function,
)
from svtoolkit.reversible.manual_backward import ManualBackward

torch.set_num_threads(1)

CHANNELS = 8
BUILDERS = {
    "basic": basic_function,
    "bottleneck": bottleneck_function,
    "one convolution": lambda channels: PreActivationFunction(nn.Conv2d(channels, channels, 3, padding=1, bias=False)),
} | {
    f"depth-first in {groups}": lambda channels, groups=groups: DepthFirstFunction(channels, groups)
    for groups in (1, 2, 4, 8)
}
every_function = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)


def built(build, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return settle_norms(build(CHANNELS)).to(dtype)


def map_of(dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (2, CHANNELS, 5, 6)) -> Tensor:
    return random_map(*shape, dtype=dtype)


def relu_of_norm(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    centred = x - x.mean((0, 2, 3), keepdim=True)
    spread = (x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
    return (norm.weight[:, None, None] * centred / spread + norm.bias[:, None, None]).clamp(min=0)


@pytest.mark.parametrize(
    ("function", "kernels"),
    [(basic_function(8), [3, 3]), (bottleneck_function(8), [1, 3, 1])],
    ids=["basic", "bottleneck"],
)
def test_norm_relu_and_convolution_again_and_again(function, kernels):
    x = expected = map_of(torch.float64)
    settle_norms(function.double())
    assert [unit.conv.kernel_size[0] for unit in function] == kernels
    assert [unit.conv.out_channels for unit in function] == ([8, 8] if len(kernels) == 2 else [2, 2, 8])
    for unit, size in zip(function, kernels, strict=True):
        expected = F.conv2d(relu_of_norm(unit.norm, expected), unit.conv.weight, padding=size // 2)
    assert distance(function(x), expected) < 1e-12


@pytest.mark.parametrize("groups", [1, 2, 4, 8, 32])
def test_the_depth_first_function_does_not_depend_on_its_groups(groups):
    function, x = built(lambda channels: DepthFirstFunction(channels, groups), torch.float64), map_of(torch.float64)
    value = relu_of_norm(function.norm1, x)
    value = relu_of_norm(function.norm2, F.conv2d(value, function.conv1.weight))
    value = relu_of_norm(function.norm3, F.conv2d(value, function.conv2.weight, padding=1, groups=32))
    assert distance(function(x), F.conv2d(value, function.conv3.weight)) < 1e-12


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_of_groups_are_those_of_the_layers(momentum):
    grouped = built(BUILDERS["depth-first in 4"])
    for norm in norms_of(grouped):
        norm.momentum = momentum
    called = copy.deepcopy(grouped)
    for seed in range(3):
        x = random_map(2, CHANNELS, 5, 6, seed=seed)
        grouped(x)
        hidden = called.conv2(F.relu(called.norm2(called.conv1(F.relu(called.norm1(x))))))
        called.conv3(F.relu(called.norm3(hidden)))
    for norm, expected in zip(norms_of(grouped), norms_of(called), strict=True):
        assert norm.num_batches_tracked == expected.num_batches_tracked == 3
        torch.testing.assert_close(norm.running_mean, expected.running_mean, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(norm.running_var, expected.running_var, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("groups", [3, 5, 64])
def test_unequal_groups_are_refused(groups):
    with pytest.raises(ValueError, match=f"32 hidden channels cannot be processed in {groups} equal groups"):
        DepthFirstFunction(CHANNELS, groups)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("mode", ["training", "frozen", "averaging", "untracked"])
@every_function
def test_the_manual_gradient_is_autograds(build, mode, dtype):
    function = built(build, dtype)
    for norm in norms_of(function):
        norm.train(mode != "frozen")
        norm.momentum = None if mode == "averaging" else norm.momentum
        norm.track_running_stats = mode != "untracked"
    assert_manual_is_autograd(function, map_of(dtype), has_hook=True)


@pytest.mark.parametrize("shape", [(1, CHANNELS, 5, 6), (3, CHANNELS, 1, 7), (2, CHANNELS, 7, 1), (1, CHANNELS, 2, 1)])
@every_function
def test_in_any_shape(build, shape):
    assert_manual_is_autograd(built(build), map_of(shape=shape), has_hook=True)


@every_function
def test_in_channels_last(build):
    x = map_of().contiguous(memory_format=torch.channels_last)
    assert_manual_is_autograd(built(build).to(memory_format=torch.channels_last), x, has_hook=True)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
@every_function
def test_under_autocast(build, cast):
    with torch.autocast("cpu", dtype=cast, cache_enabled=False):
        assert_manual_is_autograd(built(build), map_of(), has_hook=True)


@pytest.mark.parametrize("build", [BUILDERS["basic"], BUILDERS["depth-first in 4"]], ids=["basic", "depth-first"])
def test_against_finite_differences(build):
    function, x = built(build, torch.float64), random_map(2, CHANNELS, 2, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(function, (x,), nondet_tol=0.0)


def synchronised(function: nn.Module) -> nn.Module:
    return nn.SyncBatchNorm.convert_sync_batchnorm(function)


def without_affine(function: nn.Module) -> nn.Module:
    for parent in function.modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.BatchNorm2d):
                setattr(parent, name, nn.BatchNorm2d(layer.num_features, affine=False))
    return function


def first_convolution(function: nn.Module) -> nn.Conv2d:
    return next(layer for layer in function.modules() if isinstance(layer, nn.Conv2d))


def parametrised(function: nn.Module) -> nn.Module:
    parametrizations.weight_norm(first_convolution(function))
    return function


def hooked(function: nn.Module) -> nn.Module:
    first_convolution(function).register_forward_hook(lambda layer, given, result: result.sin())
    return function


def hooked_as_a_whole(function: nn.Module) -> nn.Module:
    function.register_forward_hook(lambda layer, given, result: result.sin())
    return function


def hooked_inside(function: nn.Module) -> nn.Module:
    next(function.children()).register_forward_hook(lambda layer, given, result: result.sin())
    return function


CHANGES = [synchronised, without_affine, parametrised, hooked, hooked_as_a_whole, hooked_inside]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_what_was_changed_is_left_to_autograd_and_right(function, change):
    changed = built(function)
    assert isinstance(changed, ManualBackward)
    assert changed.is_as_built()
    changed = change(changed)
    assert not changed.is_as_built()
    assert_manual_is_autograd(changed, map_of(), has_hook=True)


@pytest.mark.parametrize("change", [hooked, hooked_inside, hooked_as_a_whole])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_hook_has_its_say(function, change):
    """Its result counts, in the value and in the gradient."""
    plain, changed, x = built(function), change(built(function)), map_of()
    grad_output = torch.ones_like(x)
    for untouched, modified in zip(
        by_autograd(plain, x, grad_output), by_autograd(changed, x, grad_output), strict=True
    ):
        assert distance(modified, untouched) > 1e-3


def test_layers_that_were_replaced_are_called(monkeypatch):
    """In a depth-first function, too, whose layers are otherwise evaluated in groups."""
    calls: list[nn.Module] = []
    forward = nn.SyncBatchNorm.forward
    monkeypatch.setattr(nn.SyncBatchNorm, "forward", lambda layer, x: (calls.append(layer), forward(layer, x))[1])
    plain = built(BUILDERS["depth-first in 4"])
    changed, x = synchronised(copy.deepcopy(plain)), map_of()
    assert distance(changed(x), plain(x)) < 1e-6
    assert calls == [changed.norm1, changed.norm2, changed.norm3]


def test_something_appended_is_not_forgotten():
    function = built(basic_function)
    function.append(nn.Tanh())
    assert not function.is_as_built()
    assert_manual_is_autograd(function, map_of(), has_hook=True)
