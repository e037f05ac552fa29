"""Stem, transitions and ordinary blocks of reversible networks: manual gradients that are autograd's to the bit."""

from __future__ import annotations

from types import UnionType

import pytest
import torch
import torch.nn.functional as F
from reversible_material import assert_manual_is_autograd, norms_of, random_map, settle_norms
from torch import Tensor, nn

from svtoolkit.models.blocks import BasicBlock, Bottleneck
from svtoolkit.models.recomputed_blocks import (
    ConvNormRelu,
    DoubleStem,
    FinalActivation,
    RecomputedBasicBlock,
    RecomputedBottleneck,
    SqueezedTransition,
)
from svtoolkit.reversible import squeeze
from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.recomputation import ParameterGradients

torch.set_num_threads(1)

# name: how it is built, channels in, channels out, by what the map shrinks
# (strided shortcuts begin with 16 channels: with fewer, the CPU's convolution in channels_last writes past its memory)
BLOCKS = {
    "stem": (lambda: ConvNormRelu(1, 6), 1, 6, (1, 1)),
    "strided": (lambda: ConvNormRelu(4, 6, 2), 4, 6, (2, 2)),
    "strided in frequency": (lambda: ConvNormRelu(1, 6, (2, 1)), 1, 6, (2, 1)),
    "squeezed": (lambda: SqueezedTransition(4, 8), 4, 8, (2, 2)),
    "double stem": (lambda: DoubleStem(6), 1, 6, (1, 1)),
    "basic": (lambda: RecomputedBasicBlock(6, 6), 6, 6, (1, 1)),
    "basic, wider": (lambda: RecomputedBasicBlock(4, 6), 4, 6, (1, 1)),
    "basic, strided": (lambda: RecomputedBasicBlock(16, 6, 2), 16, 6, (2, 2)),
    "bottleneck": (lambda: RecomputedBottleneck(8, 2), 8, 8, (1, 1)),
    "bottleneck, wider": (lambda: RecomputedBottleneck(4, 2), 4, 8, (1, 1)),
    "bottleneck, strided": (lambda: RecomputedBottleneck(16, 4, 2), 16, 16, (2, 2)),
    "end": (lambda: FinalActivation(4), 4, 4, (1, 1)),
}
every_block = pytest.mark.parametrize("name", BLOCKS)
ENTRANCES = ["stem", "strided", "squeezed", "double stem"]


def built(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return settle_norms(BLOCKS[name][0]()).to(dtype)


def map_for(name: str, dtype: torch.dtype = torch.float32, size: tuple[int, int] = (6, 8), batch: int = 2) -> Tensor:
    return random_map(batch, BLOCKS[name][1], *size, dtype=dtype)


@pytest.mark.parametrize("size", [(6, 8), (5, 7), (1, 9), (1, 1)])
@every_block
def test_shapes(name, size):
    _, _, channels, (bins, frames) = BLOCKS[name]
    expected = (2, channels, -(-size[0] // bins), -(-size[1] // frames))
    assert built(name)(map_for(name, size=size)).shape == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("frozen", [False, True], ids=["training", "frozen"])
@every_block
def test_the_manual_gradient_is_autograds(name, frozen, dtype):
    block = built(name, dtype)
    for norm in norms_of(block):
        norm.train(not frozen)
    assert block.is_as_built()
    assert_manual_is_autograd(block, map_for(name, dtype))


@pytest.mark.parametrize(("batch", "size"), [(1, (6, 8)), (2, (5, 7)), (3, (1, 9)), (1, (3, 2))])
@every_block
def test_in_any_shape(name, batch, size):
    assert_manual_is_autograd(built(name), map_for(name, size=size, batch=batch))


@every_block
def test_in_channels_last(name):
    x = map_for(name).contiguous(memory_format=torch.channels_last)
    assert_manual_is_autograd(built(name).to(memory_format=torch.channels_last), x)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
@every_block
def test_under_autocast(name, cast):
    with torch.autocast("cpu", dtype=cast, cache_enabled=False):
        assert_manual_is_autograd(built(name), map_for(name))


@every_block
def test_frozen_weights_get_no_gradient(name):
    block, x = built(name), map_for(name)
    for position, parameter in enumerate(block.parameters()):
        parameter.requires_grad_(position % 2 == 0)
    assert_manual_is_autograd(block, x)


@pytest.mark.parametrize("name", ENTRANCES)
def test_the_gradient_of_the_input_is_left_out_where_nobody_wants_it(name):
    block, x = built(name), map_for(name)
    gradients = [ParameterGradients(block.parameters()) for _ in range(2)]
    grad_output = random_map(*block(x).shape, seed=5)
    with torch.no_grad():
        assert block.recompute_backward(x, grad_output.clone(), Request(gradients[0], needs_input=False)) is None
        assert block.recompute_backward(x, grad_output.clone(), Request(gradients[1])).shape == x.shape
    assert all(map(torch.equal, *(each.in_order() for each in gradients)))


def test_the_squeezed_transition_is_a_convolution_to_a_quarter_and_the_squeeze():
    block, x = built("squeezed"), map_for("squeezed", size=(5, 8))
    assert block.conv.out_channels == 2
    expected = squeeze(F.relu(F.batch_norm(block.conv(x), None, None, block.norm.weight, block.norm.bias, True)))
    assert torch.equal(block(x), expected)


@pytest.mark.parametrize(
    ("recomputed", "ordinary", "width"), [(RecomputedBasicBlock, BasicBlock, 4), (RecomputedBottleneck, Bottleneck, 8)]
)
def test_a_recomputed_block_is_the_ordinary_one(recomputed, ordinary, width):
    block, other = recomputed(width, 4, 2), ordinary(width, 4, 2)
    other.load_state_dict(block.state_dict())
    x = random_map(2, width, 6, 8)
    assert torch.equal(block(x), other(x))
    assert block.expansion == ordinary.expansion


def first_layer(block: nn.Module, kind: type | UnionType) -> nn.Module:
    return next(layer for layer in block.modules() if isinstance(layer, kind))


def synchronised(block: nn.Module) -> nn.Module:
    return nn.SyncBatchNorm.convert_sync_batchnorm(block)


def hooked(block: nn.Module) -> nn.Module:
    first_layer(block, nn.Conv2d | nn.BatchNorm2d).register_forward_hook(lambda layer, given, result: result.sin())
    return block


def hooked_as_a_whole(block: nn.Module) -> nn.Module:
    block.register_forward_hook(lambda layer, given, result: result.sin())
    return block


@pytest.mark.parametrize("change", [synchronised, hooked, hooked_as_a_whole])
@every_block
def test_what_was_changed_is_left_to_autograd_and_right(name, change):
    block = change(built(name))
    assert not block.is_as_built()
    assert_manual_is_autograd(block, map_for(name))


@pytest.mark.parametrize(
    ("name", "path"), [("double stem", "first"), ("double stem", "second"), ("basic, strided", "shortcut")]
)
def test_a_hook_on_a_part_has_its_say(name, path):
    block = built(name)
    block.get_submodule(path).register_forward_hook(lambda layer, given, result: result.sin())
    assert not block.is_as_built()
    assert_manual_is_autograd(block, map_for(name))
