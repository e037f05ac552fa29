"""Blocks that compute their own gradient in groups of channels or layers: that of autograd, from fewer maps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import pytest
import torch
from reversible_material import assert_same_buffers, one_step, random_map, relative_error, settle_norms, weighted_sum
from torch import nn

from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models.blocks import DFBottleneck
from svtoolkit.models.eres2net import Res2Block
from svtoolkit.models.redimnet_blocks import GroupedBasicBlock
from svtoolkit.models.simam_resnet import SimamBlock
from svtoolkit.reversible import Chain, Leaf, Segment
from svtoolkit.reversible.manual_backward import can_group

torch.set_num_threads(1)

BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "depth-first": lambda: DFBottleneck(8),
    "SimAM": lambda: SimamBlock(8, 8),
    "SimAM, strided": lambda: SimamBlock(8, 12, 2),
    "grouped": lambda: GroupedBasicBlock(8, 6, 4, excited=False),
    "one group, excited": lambda: GroupedBasicBlock(8, 6, 0, excited=True),
    "Res2": lambda: Res2Block(8, 4, base_width=64),
    "Res2, strided, the last stays": lambda: Res2Block(8, 8, 2, scale=3, keep_last=True),
    "Res2, fused": lambda: Res2Block(8, 8, fuse=True),
}


def planned(way: str) -> Callable[[int], tuple[Segment]]:
    return lambda count: (Segment((Leaf(0, way),)),)


def step(block: nn.Module, way: str | None, **options):
    dtype = next(block.parameters()).dtype
    x = 3 * random_map(2, 8, 6, 8, dtype=dtype)
    return one_step(Chain(block), x, "store", planner=planned(way) if way else None, **options)


@pytest.mark.parametrize("way", ["groups", "layers"])
@pytest.mark.parametrize("learns_input", [True, False])
@pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS)
def test_gradients_are_those_of_autograd(make, learns_input, way):
    torch.manual_seed(0)
    block = settle_norms(make()).double()
    assert can_group(block)
    stored, found = (step(block, way, learns_input=learns_input) for way in (None, way))
    assert torch.equal(found.value, stored.value)
    assert_same_buffers(found, stored)
    assert relative_error(found, stored) < 1e-12


@pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS)
def test_half_precision_is_as_far_from_single_as_autograd_is(make):
    torch.manual_seed(0)
    block = settle_norms(make())
    exact = step(block, None)
    stored, found = (step(block, way, cast=torch.bfloat16) for way in (None, "groups"))
    assert 0 < relative_error(found, exact) < 2 * relative_error(stored, exact)


@pytest.mark.parametrize("frozen", ["all norms", "the first norm"])
@pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS)
def test_norms_with_running_statistics_are_layers_as_others(make, frozen):
    torch.manual_seed(0)
    block = settle_norms(make()).double()
    norms = [layer for layer in block.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms if frozen == "all norms" else norms[:1]:
        norm.eval()
    stored, found = (step(block, way) for way in (None, "groups"))
    assert_same_buffers(found, stored)
    assert relative_error(found, stored) < 1e-12


def test_what_was_hooked_or_derived_is_left_to_autograd():
    class Derived(SimamBlock):
        pass

    hooked = DFBottleneck(8)
    hooked.register_forward_hook(lambda module, given, result: 2 * result)
    assert not can_group(Derived(8, 8))
    assert not can_group(hooked)
    assert relative_error(step(hooked, "groups"), step(hooked, None)) == 0


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda: DFBottleneck(16), 8.1),
        (lambda: SimamBlock(16, 16), 4.4),
        (lambda: GroupedBasicBlock(16, 16, 4, excited=False), 3.25),
        (lambda: Res2Block(16, 8), 4.28),
    ],
)
def test_maps_that_are_there_at_once(make, most):
    """Beside the input, in maps of its size, with a layer behind whose result is small."""
    x, peaks = random_map(16, 16, 16, 20).requires_grad_(), {}
    for way in ("store", "groups"):
        chain = Chain(make(), nn.AvgPool2d(8))
        chain.planner = lambda count, way=way: (Segment((Leaf(0, way),)), Segment((Leaf(1),)))
        with MemoryLedger() as ledger:
            ledger.count([x, *chain.parameters(), *chain.buffers()])
            begin = len(ledger.changes)
            weighted_sum(chain(x)).backward()
        peaks[way] = max(accumulate(change.difference for change in ledger.changes[begin:])) / x.nbytes
        x.grad = None
    assert peaks["groups"] < most < peaks["store"]
