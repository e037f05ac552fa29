"""Any plan over any blocks: the gradients of stored activations, statistics that move once, random numbers replayed."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reversible_material import (
    assert_bit_equal,
    assert_same_buffers,
    one_step,
    random_map,
    relative_error,
    sequence_of,
    settle_norms,
    weighted_sum,
)
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models.blocks import BasicBlock, Bottleneck, DFBottleneck
from svtoolkit.models.recomputed_blocks import RecomputedBasicBlock
from svtoolkit.reversible import Chain, EightBits, Leaf, Segment, by_halves
from svtoolkit.reversible.plans import WAYS, Part, Plan

torch.set_num_threads(1)

WIDTH = 8
BLOCKS = 6


def blocks(dtype: torch.dtype = torch.float64) -> Chain:
    """One of each kind; the third ends in a norm that the fourth begins with."""
    torch.manual_seed(1)
    parts = (
        DFBottleneck(WIDTH),
        sequence_of(1, WIDTH),
        nn.Sequential(nn.Dropout(0.3), nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH)),
        RecomputedBasicBlock(WIDTH, WIDTH, 2),
        Bottleneck(WIDTH, 2),
        BasicBlock(WIDTH, WIDTH),
    )
    return settle_norms(Chain(*parts)).to(dtype)


def x_of(dtype: torch.dtype = torch.float64) -> Tensor:
    return random_map(2, WIDTH, 6, 8, dtype=dtype)


@st.composite
def plans(draw: st.DrawFn, begin: int = 0, end: int = BLOCKS, depth: int = 3) -> Plan:
    parts: list[Part] = []
    while begin < end:
        last = draw(st.integers(begin + 1, end))
        if depth and draw(st.booleans()):
            parts.append(Segment(draw(plans(begin, last, depth - 1))))
        else:
            parts.extend(Leaf(position, draw(st.sampled_from(WAYS))) for position in range(begin, last))
        begin = last
    return tuple(parts)


@settings(max_examples=25, deadline=None)
@given(plan=plans(), learns_input=st.booleans(), frozen=st.integers(0, BLOCKS - 1))
def test_any_plan(plan, learns_input, frozen):
    chain = blocks()
    chain[:frozen].requires_grad_(False)
    stored = one_step(chain, x_of(), "store", learns_input=learns_input)
    left = torch.get_rng_state()
    found = one_step(chain, x_of(), "store", learns_input=learns_input, planner=lambda count: plan)
    assert torch.equal(found.value, stored.value)
    assert_same_buffers(found, stored)
    assert relative_error(found, stored) < 1e-9
    assert torch.equal(torch.get_rng_state(), left)


class Noting(NamedTuple):
    """A plan whose chains keep what their norms found."""

    plan: Plan
    keeps_norms: bool = True

    def __call__(self, count: int) -> Plan:
        return self.plan


@settings(max_examples=15, deadline=None)
@given(plan=plans(), learns_input=st.booleans())
def test_any_plan_whose_norms_are_found_once(plan, learns_input):
    chain = blocks()
    stored = one_step(chain, x_of(), "store", learns_input=learns_input)
    found = one_step(chain, x_of(), "store", learns_input=learns_input, planner=Noting(plan))
    assert torch.equal(found.value, stored.value)
    assert_same_buffers(found, stored)
    assert relative_error(found, stored) < 1e-9


@pytest.mark.parametrize("way", ["store", "norm", "expand"])
def test_statistics_that_are_known_are_not_computed_again(way):
    """One evaluation in training, one by what it found, and a gradient that is that of BatchNorm."""
    chain = Chain(Bottleneck(WIDTH, 2), Bottleneck(WIDTH, 2))
    plan = (Segment((Segment((Leaf(0, way),)), Leaf(1, way))),)
    calls = []
    for planner in (lambda _: plan, Noting(plan)):
        with Calls() as seen:
            one_step(chain, x_of(torch.float32), "store", planner=planner)
        calls.append(seen.in_training)
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in chain.modules())
    assert calls[1] == norms < calls[0]


class Calls(TorchDispatchMode):
    """Counts BatchNorms that find statistics."""

    in_training = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.in_training += func is torch.ops.aten.native_batch_norm.default and args[5]
        return func(*args, **(kwargs or {}))


MIXED = (
    Leaf(0, "expand"),
    Segment((Leaf(1), Segment((Leaf(2, "norm"), Leaf(3, "norm"))), Segment((Leaf(4, "expand"),)))),
    Leaf(5),
)


@pytest.mark.parametrize("cast", [None, torch.bfloat16])
def test_single_precision_to_the_bit(cast):
    chain, x = blocks(torch.float32), x_of(torch.float32)
    assert_bit_equal(
        one_step(chain, x, "store", cast=cast, planner=lambda _: MIXED), one_step(chain, x, "store", cast=cast)
    )


@pytest.mark.parametrize("momentum", [0.3, None])
def test_statistics_move_once_whatever_is_evaluated_how_often(momentum):
    chain = blocks()
    for module in chain.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = momentum
    found = one_step(chain, x_of(), "store", planner=by_halves)
    assert_same_buffers(found, one_step(chain, x_of(), "store"))
    assert all(count == 1 for name, count in found.buffers.items() if name.endswith("tracked"))


def test_groups_in_half_precision_are_as_near_to_single_precision_as_stored_ones():
    """Each group's share of a sum is rounded, which the sum alone is otherwise."""
    torch.manual_seed(0)
    chain, x = settle_norms(Chain(*(DFBottleneck(16) for _ in range(2)))), random_map(4, 16, 12, 20)
    plan = tuple(Leaf(position, "groups") for position in range(2))
    exact = one_step(chain, x, "store")
    stored, found = (
        one_step(chain, x, "store", cast=torch.bfloat16, planner=planner) for planner in (None, lambda _: plan)
    )
    assert 0 < relative_error(found, exact) < 1.5 * relative_error(stored, exact)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "convert", [lambda chain: chain, nn.SyncBatchNorm.convert_sync_batchnorm], ids=["plain", "sync"]
)
def test_groups_where_nothing_can_be_grouped_or_statistics_are_frozen(convert, training):
    chain = convert(settle_norms(Chain(DFBottleneck(WIDTH), BasicBlock(WIDTH, WIDTH)))).double().train(training)
    plan = (Segment((Leaf(0, "groups"), Leaf(1, "groups"))),)
    stored, found = (one_step(chain, x_of(), "store", planner=planner) for planner in (None, lambda _: plan))
    assert relative_error(found, stored) < 1e-9
    assert_same_buffers(found, stored)


def test_what_is_kept_in_eight_bits_says_each_segment():
    chain, x = Chain(*(BasicBlock(WIDTH, WIDTH) for _ in range(2))).double(), x_of()
    stored = one_step(chain, x, "store")
    errors = []
    for stashes in ((None, None), (None, EightBits()), (EightBits(), EightBits())):
        plan = tuple(Segment((Leaf(position),), stash) for position, stash in enumerate(stashes))
        errors.append(relative_error(one_step(chain, x, "store", planner=lambda _, plan=plan: plan), stored))
    assert errors[0] < 1e-12 < 1e-4 < errors[1] < errors[2] < 0.5


class Counted(nn.Module):
    """A block that counts its evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.calls = nn.Conv2d(WIDTH, WIDTH, 3, padding=1), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.tanh(self.conv(x))


def one(position: int) -> Segment:
    return Segment((Leaf(position),))


@pytest.mark.parametrize(
    ("plan", "calls"),
    [
        ((Leaf(0), Leaf(1), one(2), one(3)), [1, 1, 2, 2]),
        ((Segment((Leaf(0), Leaf(1), Leaf(2), Leaf(3))),), [2, 2, 2, 2]),
        ((Segment((one(0), one(1), one(2), one(3))),), [3, 3, 3, 2]),
        ((Segment((Segment((one(0), one(1))), Segment((one(2), one(3))))),), [4, 3, 3, 2]),
        ((Segment((Leaf(0), Leaf(1), Segment((Leaf(2), Leaf(3))))),), [2, 2, 2, 2]),
    ],
)
def test_what_nobody_reads_is_not_evaluated_again(plan, calls):
    chain = Chain(*(Counted() for _ in range(4)))
    chain.planner = lambda count: plan
    chain(x_of(torch.float32)).sum().backward()
    assert [block.calls for block in chain] == calls


def test_maps_at_once_of_a_block_in_groups():
    """In maps of its input: of hidden ones, which are four, autograd keeps four and needs two more."""
    x = random_map(2, 16, 24, 32)
    peaks = []
    for way in ("store", "expand", "groups"):
        chain = Chain(DFBottleneck(16), nn.AvgPool2d(8))
        chain.planner = lambda count, way=way: (Segment((Leaf(0, way),)), one(1))
        with MemoryLedger() as ledger:
            weighted_sum(chain(x)).backward()
        peaks.append(max(accumulate(change.difference for change in ledger.changes)) / x.nbytes)
    assert peaks[0] > 25
    assert 17 < peaks[1] < 19
    assert peaks[2] < 10


def test_values_of_a_chain_are_recomputed_one_by_one():
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chain = blocks()[3:]

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([value.flatten() for value in self.chain.values(x)])

    network, x = Listed(), random_map(2, WIDTH, 6, 8, dtype=torch.float64)
    plan = (Leaf(0, "norm"), Segment((Leaf(1, "expand"), Leaf(2))))
    assert relative_error(one_step(network, x, "store", planner=lambda _: plan), one_step(network, x, "store")) < 1e-12


def test_a_planner_that_miscounts_is_refused():
    chain = blocks()
    chain.planner = lambda count: by_halves(count - 1)
    with pytest.raises(ValueError, match="expected each of 6 once, in order"):
        chain(x_of())
