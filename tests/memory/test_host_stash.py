"""Inputs of blocks in host memory, with the CPU as the device: gradients bit for bit, copies that end late."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from offload_material import LateTransfers, plain
from reversible_material import assert_bit_equal, one_step, random_map, sequence_of
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.host_pool import HostPool
from svtoolkit.memory.host_stash import HostMemory, seconds_of
from svtoolkit.memory.planner.block_costs import BlockCosts
from svtoolkit.memory.planner.choice import least_plan
from svtoolkit.memory.planner.clock import CONSUMER_GPU
from svtoolkit.memory.planner.costs import outlay_of
from svtoolkit.memory.planner.surroundings import Crops, measure_network
from svtoolkit.models import build_model
from svtoolkit.reversible import Chain, Leaf, Segment
from svtoolkit.reversible.plans import Plan, by_block

torch.set_num_threads(1)


def late(transfers: LateTransfers) -> HostMemory:
    return HostMemory(lambda device: transfers, HostPool(plain))


def resnet() -> nn.Module:
    return build_model("resnet10", num_bins=16, embedding_dim=8, base_width=4)


def mixed_plan(count: int, stash: HostMemory) -> Plan:
    """Inputs in host memory at every second block, from the first on; the last block is stored."""
    parts = [Segment((Leaf(n),), None if n % 2 else stash) for n in range(count - 1)]
    return (*parts, Leaf(count - 1))


@pytest.mark.parametrize("cast", [None, torch.bfloat16])
@pytest.mark.parametrize("make", [by_block, mixed_plan])
def test_gradients_are_those_of_stored_activations_bit_for_bit(make, cast):
    torch.manual_seed(0)
    network, frames = resnet(), random_map(3, 24, 16)
    stored = one_step(network, frames, "store", cast=cast)
    transfers = LateTransfers()
    stash = late(transfers)
    found = one_step(network, frames, "store", planner=lambda count: make(count, stash), cast=cast)
    assert_bit_equal(found, stored)
    assert len([event for event, _ in transfers.order if event == "copy"]) == (8 if make is by_block else 4)


def chain(length: int) -> Chain:
    return Chain(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(length)))


def test_it_comes_back_one_block_ahead_and_not_earlier():
    """Of four blocks: two copies to the host in a row are each waited for before the next is asked for."""
    transfers = LateTransfers()
    stash, blocks = late(transfers), chain(4)
    blocks.planner = lambda count: by_block(count, stash)
    loss = blocks(torch.randn(3, 16, requires_grad=True)).sum()
    sent = [copy for event, copy in transfers.order if event == "copy"]
    assert [event for event, _ in transfers.order] == ["copy", "wait"] * 4
    del transfers.order[:]
    loss.backward()
    numbers = {id(copy): sent.index(copy.after) for event, copy in transfers.order if event == "copy"}
    found = [(event, numbers[id(copy)]) for event, copy in transfers.order]
    assert found == [
        ("copy", 2), ("copy", 3), ("wait", 3), ("copy", 1), ("wait", 2), ("copy", 0), ("wait", 1), ("wait", 0),
    ]  # fmt: skip


def test_the_device_holds_no_input_between_forward_and_backward():
    inputs: list[weakref.ref[torch.UntypedStorage]] = []

    class Watched(nn.Tanh):
        def forward(self, x: Tensor) -> Tensor:
            inputs.append(weakref.ref(x.untyped_storage()))
            return super().forward(x)

    stash, blocks = late(LateTransfers()), Chain(*(Watched() for _ in range(4)))
    blocks.planner = lambda count: by_block(count, stash)
    loss = blocks(torch.randn(3, 16).requires_grad_() * 1.0).sum()
    gc.collect()
    assert [each() for each in inputs] == [None] * 4
    loss.backward()


def test_graphs_that_are_kept_or_dropped():
    stash, blocks = late(LateTransfers()), chain(3)
    blocks.planner = lambda count: by_block(count, stash)
    x = torch.randn(3, 16)
    dropped = blocks(x).sum()
    loss = blocks(x).square().sum()
    del dropped
    gc.collect()
    once = torch.autograd.grad(loss, list(blocks.parameters()), retain_graph=True)
    again = torch.autograd.grad(loss, list(blocks.parameters()))
    blocks.planner = None
    expected = torch.autograd.grad(blocks(x).square().sum(), list(blocks.parameters()))
    for found in (once, again):
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    del loss
    gc.collect()
    assert sum(len(buffer.memory) for buffer in stash.pool._free) == stash.pool.allocated


def test_on_a_cpu_it_is_said_once_that_nothing_happens(caplog):
    network, frames = resnet(), random_map(3, 24, 16)
    stored = one_step(network, frames, "store")
    stash = HostMemory()
    for _ in range(2):
        assert_bit_equal(one_step(network, frames, "store", planner=lambda count: by_block(count, stash)), stored)
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "memory.offload=true does nothing on a CPU: activations stay where they are"
    ]


class Wide(nn.Module):
    """A chain of wide layers after another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(16, 512)
        wide = [nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(6)]
        self.chain = Chain(*wide)

    def forward(self, frames: Tensor) -> Tensor:
        return self.chain(torch.tanh(self.before(frames))).mean(1)


def test_a_plan_sends_inputs_to_the_host_and_knows_what_that_takes():
    """Less memory than any plan without; time that no computation hides is counted."""
    costs, _ = measure_network(Wide(), Crops(64, 32, 16), BlockCosts(CONSUMER_GPU, host=HostMemory()))
    on_device, _ = measure_network(Wide(), Crops(64, 32, 16))
    found = least_plan(costs)
    assert found.peak < least_plan(on_device).peak
    assert any(isinstance(part, Segment) and part.stash == HostMemory() for part in found.plans[0])
    recomputed = tuple(Segment((Leaf(n),)) for n in range(6))
    sent = tuple(Segment((Leaf(n),), HostMemory()) for n in range(6))
    times = [outlay_of(costs, (plan,)).seconds for plan in (recomputed, sent)]
    travel = seconds_of(64 * 32 * 512 * 4)
    block = costs.runs[0].blocks[0]
    gradient = next(option for option in block.options if option.travel).gradient_seconds
    hidden = 6 * min(travel, block.seconds) + 5 * min(travel, gradient)
    assert times[1] - times[0] == pytest.approx(12 * travel - hidden)
    assert hidden > 0


def test_a_network_that_keeps_no_inputs_is_told_so():
    network = nn.Sequential(nn.Unflatten(1, (1, 24)), nn.Conv2d(1, 4, 3, padding=1), Chain(sequence_of(2, 4)))
    with pytest.raises(
        UserError, match=r"memory\.offload=true lets inputs .* all are reversible; leave memory\.offload"
    ):
        apply_strategy(network, "planned", times=1.4, offload=True, frames=24, num_bins=16)
