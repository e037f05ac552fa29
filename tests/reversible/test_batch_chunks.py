"""Gradients a few utterances of the batch at a time: those of the whole batch, whatever its size and precision."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
import torch.nn.functional as F
from reversible_material import (
    assert_same_buffers,
    one_step,
    random_map,
    relative_error,
    sequence_of,
    settle_norms,
    weighted_sum,
)
from torch import Tensor, nn

from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models.blocks import BasicBlock, Bottleneck, DFBottleneck
from svtoolkit.reversible import Chain, Leaf, Segment
from svtoolkit.reversible.batch_norms import Norm, PartOfBatch, levels_of, recorded_norms, sums_of
from svtoolkit.reversible.chunks import can_chunk
from svtoolkit.reversible.parts import PARTS

torch.set_num_threads(1)

WIDTH = 8


def chunked(count: int) -> tuple[Leaf, ...]:
    return tuple(Leaf(position, "chunks") for position in range(count))


def both(chain: Chain, x: Tensor, **options):
    """A step by chunks, and one with stored activations."""
    return tuple(one_step(chain, x, "store", planner=planner, **options) for planner in (chunked, None))


class Plain(nn.Module):
    """Norms by function: without affine, without running statistics, of what a frozen convolution makes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1).requires_grad_(False)
        self.scale = nn.Parameter(torch.full((WIDTH,), 0.7))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(F.batch_norm(self.conv(x), None, None, training=True))
        return F.batch_norm(y * y + x, None, None, self.scale.exp(), training=True)


@pytest.mark.parametrize("batch", [1, 3, 19])
def test_gradients_of_any_batch(batch):
    torch.manual_seed(0)
    chain = Chain(Bottleneck(WIDTH, 2), DFBottleneck(WIDTH), Plain(), BasicBlock(WIDTH, 2 * WIDTH, 2))
    chain = settle_norms(chain).double()
    chain[1].requires_grad_(False)
    found, stored = both(chain, random_map(batch, WIDTH, 5, 6, dtype=torch.float64))
    assert torch.equal(found.value, stored.value)
    assert_same_buffers(found, stored)
    assert relative_error(found, stored) < 1e-9


def test_a_row_of_frames():
    torch.manual_seed(0)
    chain = Chain(nn.Sequential(nn.Conv1d(6, 6, 3), nn.BatchNorm1d(6), nn.ReLU()), nn.BatchNorm1d(6)).double()
    found, stored = both(chain, torch.randn(9, 6, 7, dtype=torch.float64))
    assert relative_error(found, stored) < 1e-9
    flat = Chain(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU())).double()
    found, stored = both(flat, torch.randn(9, 6, dtype=torch.float64))
    assert relative_error(found, stored) < 1e-9


def test_half_precision_is_as_near_to_single_precision_as_stored_activations():
    torch.manual_seed(0)
    chain = settle_norms(Chain(DFBottleneck(16), Bottleneck(16, 4)))
    x = random_map(8, 16, 12, 16)
    exact = one_step(chain, x, "store")
    found, stored = both(chain, x, cast=torch.bfloat16)
    assert torch.equal(found.value, stored.value)
    assert 0 < relative_error(found, exact) < 1.3 * relative_error(stored, exact)


def test_layout_of_channels_last_is_kept():
    chain = settle_norms(Chain(BasicBlock(WIDTH, WIDTH)))
    chain = chain.to(memory_format=torch.channels_last)
    chain.planner = chunked
    x = random_map(9, WIDTH, 6, 7).to(memory_format=torch.channels_last).requires_grad_()
    layouts = []

    def look(gradient: Tensor) -> None:
        layouts.append(gradient.is_contiguous(memory_format=torch.channels_last))

    (begin := x * 1).register_hook(look)
    chain(begin).square().sum().backward()
    assert layouts == [True]


def test_sums_of_parts_are_the_gradients_of_the_whole():
    """And the norms' numbers are those of Ioffe & Szegedy 2015, by formula."""
    x = torch.randn(6, 3, 4, dtype=torch.float64)
    layer = nn.BatchNorm1d(3).double()
    with recorded_norms(x.device) as recording:
        y = layer(x)
    (norm,) = recording.norms
    assert torch.allclose(norm.mean, x.mean((0, 2)))
    assert torch.allclose(norm.variance, x.var((0, 2), correction=0))
    assert norm.values == 24
    dy = torch.randn_like(y)
    parts = [sums_of(x[rows], dy[rows], norm) for rows in (slice(0, 4), slice(4, 6))]
    normal = (x - x.mean((0, 2), keepdim=True)) / (x.var((0, 2), correction=0, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(parts[0].weight + parts[1].weight, (dy * normal).sum((0, 2)))
    assert torch.allclose(parts[0].bias + parts[1].bias, dy.sum((0, 2)))


def test_norms_beside_each_other_share_an_evaluation():
    """A shortcut's norm and the last one; the first is read by the last."""
    block, x = BasicBlock(WIDTH, 2 * WIDTH, 2), random_map(1, WIDTH, 6, 7)
    with torch.no_grad(), recorded_norms(x.device) as recording:
        block(x)
    part = PartOfBatch(recording.norms, [None] * 3, adds_sums=False)
    with part:
        block(x)
    assert sorted(levels_of(part.nodes).values()) == [0, 0, 1]


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 1), nn.BatchNorm2d(WIDTH), nn.ReLU(), nn.BatchNorm2d(WIDTH))
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        return self.layers(x)


def test_evaluations():
    """All at once; one utterance, for the order of norms; a pass for each of two norms, and the last."""
    block = Counted()
    chain = Chain(block)
    chain.planner = chunked
    chain(random_map(17, WIDTH, 4, 4)).sum().backward()
    assert block.sizes == [17, 1, *[2, 2, 2, 2, 2, 2, 2, 2, 1] * 3]
    assert PARTS == 16


class Inside(torch.autograd.Function):
    """A norm that autograd does not see."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.batch_norm(x, None, None, training=True)

    @staticmethod
    def backward(ctx, dy: Tensor) -> Tensor:
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            return torch.autograd.grad(F.batch_norm(x, None, None, training=True), x, dy)[0]


class Hidden(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Inside.apply(x)


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.3)


def sync(width: int) -> nn.Module:
    return nn.SyncBatchNorm(width)


def hooked() -> nn.Module:
    block = BasicBlock(WIDTH, WIDTH)
    block.bn1.register_forward_hook(lambda module, inputs, result: None)
    return block


@pytest.mark.parametrize(
    "block", [Hidden(), Noise(), nn.Dropout(0.3), sequence_of(1, WIDTH), hooked(), sync(WIDTH).eval()]
)
def test_what_cannot_be_divided_is_recomputed_as_a_whole(block):
    chain = settle_norms(Chain(nn.Conv2d(WIDTH, WIDTH, 1), block)).double()
    found, stored = both(chain, random_map(5, WIDTH, 4, 6, dtype=torch.float64))
    assert relative_error(found, stored) < 1e-9


def test_what_can_be_divided_as_far_as_layers_tell():
    assert can_chunk(Bottleneck(WIDTH, 2))
    assert can_chunk(nn.Dropout(0.3).eval())
    assert can_chunk(nn.InstanceNorm1d(4, track_running_stats=True))
    assert not any(map(can_chunk, (nn.Dropout(0.3), nn.LSTM(3, 3), sync(WIDTH), sequence_of(1, WIDTH), hooked())))


def test_memory_of_a_block_is_a_sixteenth_beside_input_and_gradients():
    """In maps of its input: the block's own hidden ones are four times as many channels each."""
    x, peaks = random_map(16, 8, 16, 20), []
    for part in (Segment((Leaf(0),)), Leaf(0, "chunks")):
        chain = Chain(DFBottleneck(8))
        with MemoryLedger() as ledger:
            chain.planner = lambda _, part=part: (part,)
            loss = weighted_sum(chain(x * 1))
            begin = len(ledger.changes)
            loss.backward()
        peaks.append(max(list(accumulate(change.difference for change in ledger.changes))[begin:]) / x.nbytes)
    assert peaks[0] > 25
    assert peaks[1] < 8


def test_an_evaluation_that_differs_from_the_first_is_refused():
    part = PartOfBatch([Norm(torch.zeros(3), torch.ones(3), 1e-5, 8)], [None], adds_sums=False)
    layer = nn.BatchNorm1d(3)
    with part:
        layer(layer(torch.randn(4, 3, 2)))
    assert not part.is_understood
