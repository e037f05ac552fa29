"""Values that several places of a network read: gradients of stored ones, each kept once, mixtures not at all."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.reversible import Chain, EightBits, Repetition, SharedValues, Sharing, by_block
from svtoolkit.reversible.plans import Leaf, Planner

torch.set_num_threads(1)

ROWS, FRAMES = 4, 12


class Reader(nn.Module):
    """Stages that each read a mixture of all maps before, whose maps may be shorter until they are read."""

    def __init__(self, factors: list[int], *, normed: bool, planner: Planner | None) -> None:
        super().__init__()
        self.sharing: Sharing | None = None
        self.stages = nn.ModuleList(self._stage(factor) for factor in factors)
        self.ends = nn.ModuleList(self._end(factor, normed=normed) for factor in factors)
        counts = range(2, len(factors) + 2)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(1, count, ROWS, 1)) for count in counts)
        for stage in self.stages:
            stage.planner = planner

    @staticmethod
    def _stage(factor: int) -> Chain:
        return Chain(nn.Conv1d(ROWS, ROWS, factor, stride=factor), nn.BatchNorm1d(ROWS), nn.Tanh())

    @staticmethod
    def _end(factor: int, *, normed: bool) -> nn.Module:
        end = Repetition(factor) if factor > 1 else nn.Identity()
        return nn.Sequential(end, nn.GroupNorm(2, ROWS)) if normed else end

    def forward(self, x: Tensor) -> Tensor:
        values, weights = SharedValues(self.sharing), None
        values.add(torch.tanh(x), nn.Identity())
        mixed = values.only()
        for stage, end, mixing in zip(self.stages, self.ends, self.weights, strict=True):
            with values.made_again(mixed, weights):
                made = stage(mixed)
            values.add(made, end)
            weights = torch.softmax(mixing, dim=1).unbind(1)
            mixed = values.mixed(weights)
        return mixed


def stored(count: int) -> tuple[Leaf, ...]:
    return tuple(Leaf(position, "norm") for position in range(count))


def step(network: Reader, x: Tensor, sharing: Sharing | None) -> tuple[Tensor, list[Tensor]]:
    network.sharing = sharing
    x = x.clone().requires_grad_()
    value = network(x)
    found = torch.autograd.grad(value.square().sum(), [x, *network.parameters()], allow_unused=True)
    return value.detach(), [each for each in found if each is not None]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from((None, by_block, stored)),
    st.integers(1, 11),
)
def test_gradients_are_those_of_stored_values(factors, normed, planner, batch):
    torch.manual_seed(0)
    network = Reader(factors, normed=normed, planner=planner).double()
    x = torch.randn(batch, ROWS, FRAMES, dtype=torch.float64)
    expected, gradients = step(network, x, None)
    found, others = step(network, x, Sharing())
    assert torch.equal(found, expected)
    assert len(others) == len(gradients)
    for one, other in zip(gradients, others, strict=True):
        assert (one - other).abs().max() <= 1e-9 * max(1.0, one.abs().max())


def test_codes_leave_the_forward_pass_as_it_is():
    torch.manual_seed(0)
    network, x = Reader([1, 2, 1], normed=False, planner=by_block), torch.randn(3, ROWS, FRAMES)
    expected, gradients = step(network, x, None)
    found, others = step(network, x, Sharing(EightBits()))
    assert torch.equal(found, expected)
    one, other = (torch.cat([each.flatten() for each in of]) for of in (gradients, others))
    assert 0 < (one - other).norm() < 0.05 * one.norm()


@pytest.mark.parametrize("sharing", [Sharing(), Sharing(EightBits())])
def test_a_graph_that_is_kept_is_differentiated_again_and_another_refuses(sharing):
    network, x = Reader([1, 2], normed=True, planner=by_block), torch.randn(3, ROWS, FRAMES)
    network.sharing = sharing
    loss = network(x).square().sum()
    once = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
    again = torch.autograd.grad(loss, list(network.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, list(network.parameters()))


def test_a_value_that_was_modified_is_refused():
    values, weight = SharedValues(Sharing()), torch.ones(1, ROWS, 1, requires_grad=True)
    value = torch.randn(2, ROWS, FRAMES)
    values.add(value, nn.Identity())
    loss = values.mixed([weight]).sum()
    value.zero_()
    with pytest.raises(RuntimeError, match="modified in place"):
        loss.backward()


def live_after_forward(sharing: Sharing | None, batch: int = 64) -> float:
    """In maps of full length."""
    network = Reader([1, 3, 3], normed=False, planner=by_block)
    network.sharing = sharing
    x = torch.randn(batch, ROWS, FRAMES)
    with MemoryLedger() as ledger:
        ledger.count([*network.parameters(), *network.buffers(), x])
        before = sum(ledger.live().values())
        loss = network(x).sum()
        gc.collect()
        after = sum(ledger.live().values())
    loss.backward()
    return (after - before) / (x.numel() * 4)


def test_mixtures_are_not_kept_and_maps_are_short():
    """Two inputs of stages and the inside of the blocks are what remains beside the maps."""
    kept = [live_after_forward(sharing) for sharing in (None, Sharing(), Sharing(EightBits()))]
    assert kept[0] - kept[1] > 2
    assert kept[1] - kept[2] > 1
