"""memory=checkpoint on every family: the numbers of stored activations, statistics that move once, less memory."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from network_material import BUILDERS, RECOMPUTED, is_called_reversible, narrow, on_meta
from reversible_material import assert_bit_equal, assert_same_buffers, one_step, random_map, relative_error
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.strategies.checkpoint import SEGMENTS
from svtoolkit.models import build_model
from svtoolkit.models.blocks import BasicBlock
from svtoolkit.reversible import Chain
from svtoolkit.reversible.plans import Planner

torch.set_num_threads(1)

WITHOUT_BLOCKS = {"ge2e_lstm"}
"""A recurrent network has no blocks that follow each other."""


def resnet() -> nn.Module:
    return build_model("resnet10", num_bins=16, embedding_dim=8, base_width=4)


@pytest.mark.parametrize("name", RECOMPUTED)
def test_gradients_and_statistics_are_those_of_stored_activations(name):
    """Up to the order in which gradients of what is used twice are added up; every block is evaluated most often."""
    torch.manual_seed(0)
    network, frames = narrow(name, num_bins=16, embedding_dim=8).double(), random_map(3, 16, 16).double()
    stored = one_step(network, frames, "store")
    found = one_step(network, frames, "checkpoint", segments="recursive")
    assert torch.equal(found.value, stored.value)
    assert_same_buffers(found, stored)
    assert relative_error(found, stored) < 1e-14


@pytest.mark.parametrize("segments", SEGMENTS)
@pytest.mark.parametrize("cast", [None, torch.bfloat16])
def test_where_nothing_is_used_twice_they_are_equal_bit_for_bit(cast, segments):
    network, frames = resnet(), random_map(3, 24, 16)
    stored = one_step(network, frames, "store", cast=cast)
    assert_bit_equal(one_step(network, frames, "checkpoint", segments=segments, cast=cast), stored)


class Dropped(nn.Module):
    """Blocks that draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = Chain(*(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Tanh()) for _ in range(5)))

    def forward(self, frames: Tensor) -> Tensor:
        return self.blocks(frames)


@pytest.mark.parametrize("segments", SEGMENTS)
def test_random_numbers_are_drawn_again(segments):
    network, frames = Dropped(), random_map(3, 24, 16)
    steps = []
    for settings in ({"strategy": "store"}, {"strategy": "checkpoint", "segments": segments}):
        steps.append((one_step(network, frames, **settings), torch.rand(1)))
    assert_bit_equal(steps[1][0], steps[0][0])
    assert steps[0][1] == steps[1][1]


@pytest.mark.parametrize("segments", SEGMENTS)
def test_frozen_blocks_at_the_beginning(segments):
    network, frames = resnet(), random_map(3, 24, 16)
    for part in (network.stem, *network.stages[:2]):
        part.requires_grad_(False)
    stored = one_step(network, frames, "store", learns_input=False)
    found = one_step(network, frames, "checkpoint", segments=segments, learns_input=False)
    assert_bit_equal(found, stored)


def test_second_derivatives_are_refused():
    network = resnet()
    apply_strategy(network, "checkpoint", segments="recursive")
    frames = random_map(2, 24, 16).requires_grad_()
    (gradient,) = torch.autograd.grad(network(frames).sum(), frames, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        gradient.sum().backward()


def test_a_weight_that_changed_before_backward_is_refused():
    network = resnet()
    apply_strategy(network, "checkpoint", segments="sqrt")
    value = network(random_map(2, 24, 16))
    with torch.no_grad():
        network.stages[0][0].conv1.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified or replaced before its gradient"):
        value.sum().backward()


def test_the_graph_may_be_kept():
    network = resnet()
    apply_strategy(network, "checkpoint", segments="sqrt")
    value = network(random_map(2, 24, 16)).sum()
    first, second = (
        torch.autograd.grad(value, [network.stages[0][0].conv1.weight], retain_graph=keep) for keep in (1, 0)
    )
    assert torch.equal(*first, *second)


@pytest.mark.parametrize("name", BUILDERS.values())
def test_every_network_but_reversible_ones_lists_blocks(name):
    network = on_meta(name, num_bins=24, embedding_dim=8)
    if not is_called_reversible(name) and name not in WITHOUT_BLOCKS:
        assert apply_strategy(network, "checkpoint") == "checkpoint"
        apply_strategy(network, "store")
        return
    with pytest.raises(UserError, match="choose memory="):
        apply_strategy(network, "checkpoint")


def test_memory_of_36_blocks():
    """In maps of one block, which autograd keeps four of: 36 inputs; 6 inputs and 6 blocks; log2(36) inputs."""
    chain = Chain(*(BasicBlock(4, 4) for _ in range(36)))
    frames = random_map(4, 4, 16, 40)

    def maps(planner: Planner | None) -> float:
        chain.planner = planner
        with MemoryLedger() as ledger:
            chain(frames).sum().backward()
        chain.zero_grad()
        return max(accumulate(change.difference for change in ledger.changes)) / (4 * frames.numel())

    stored, blocks, sqrt, recursive = map(maps, (None, *SEGMENTS.values()))
    assert 4 * 36 < stored < 4 * 36 + 12
    assert 36 < blocks < 36 + 12
    assert 6 + 4 * 6 < sqrt < 6 + 4 * 6 + 12
    assert 5 < recursive < 5 + 12


def test_an_unknown_word_is_refused_with_those_there_are():
    with pytest.raises(UserError, match=r"memory\.segments is 'halves', expected one of blocks, sqrt, recursive"):
        apply_strategy(resnet(), "checkpoint", segments="halves")


def test_segments_belong_to_checkpoint():
    with pytest.raises(UserError, match="memory strategy store has no option 'segments'"):
        apply_strategy(resnet(), "store", segments="sqrt")
