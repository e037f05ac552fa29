"""Tensors as flat stretches: every value once, in order, whatever the memory layout; blocks of their own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.optim import chunks
from svtoolkit.optim.chunks import Gathered, plan_chunks

torch.set_num_threads(1)


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 32 values."""
    monkeypatch.setattr(chunks, "CHUNK_VALUES", 32)
    plan_chunks.cache_clear()
    yield
    plan_chunks.cache_clear()


@given(st.lists(st.integers(0, 200), max_size=8).map(tuple), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_every_value_is_in_one_piece_that_begins_a_block(lengths, block_size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_VALUES", 32)
        plan = plan_chunks.__wrapped__(lengths, block_size)
    seen = []
    for chunk in plan:
        values, blocks = chunk.values, chunk.blocks
        assert 0 < sum(values.sizes) <= max(32, block_size)
        assert sum(values.sizes) == sum(blocks.sizes) * block_size
        assert [stop - start for _, start, stop in values.pieces] == list(values.sizes[::2])
        assert all(padding < block_size for padding in values.sizes[1::2])
        for (tensor, start, stop), of_blocks in zip(values.pieces, blocks.pieces, strict=True):
            assert start % block_size == 0
            assert of_blocks == (tensor, start // block_size, -(-stop // block_size))
            seen += [(tensor, index) for index in range(start, stop)]
    assert seen == [(tensor, index) for tensor, length in enumerate(lengths) for index in range(length)]


def laid_out(shape: tuple[int, ...], order: tuple[int, ...]) -> torch.Tensor:
    """Distinct values in a dense layout: dimensions from the slowest to the fastest."""
    permuted = torch.empty([shape[axis] for axis in order])
    tensor = permuted.permute([order.index(axis) for axis in range(len(shape))])
    return tensor.copy_(torch.arange(tensor.numel(), dtype=torch.float32).view(shape))


layouts = st.integers(1, 4).flatmap(
    lambda dims: st.tuples(
        st.tuples(*[st.integers(1, 5)] * dims),
        st.permutations(range(dims)).map(tuple),
    )
)


@given(st.lists(layouts, min_size=1, max_size=4), st.integers(1, 20), st.data())
@settings(max_examples=150, deadline=None)
def test_gathering_flattens_and_scattering_puts_back(shapes, block_size, data):
    tensors = [laid_out(*layout) for layout in shapes]
    if data.draw(st.booleans()):  # a view with gaps
        tensors.append(torch.arange(60.0).view(6, 10)[:, 1:4])
    flattened = [tensor.flatten().clone() for tensor in tensors]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_VALUES", 24)
        plan = plan_chunks.__wrapped__(tuple(len(values) for values in flattened), block_size)
    for chunk in plan:
        gathered = Gathered(chunk.values, tensors, torch.float64, padding=-7)
        parts = gathered.flat.split(chunk.values.sizes)
        for part, (tensor, start, stop) in zip(parts[::2], chunk.values.pieces, strict=True):
            assert torch.equal(part, flattened[tensor][start:stop].double())
        assert all((padding == -7).all() for padding in parts[1::2])
        gathered.flat.mul_(2)
        gathered.scatter()
    for tensor, values in zip(tensors, flattened, strict=True):
        assert torch.equal(tensor.flatten(), 2 * values)


def test_scalars_and_empty_tensors(small_chunks):
    tensors = [torch.tensor(3.0), torch.empty(0, 4), torch.tensor([5.0])]
    (chunk,) = plan_chunks((1, 0, 1), 4)
    gathered = Gathered(chunk.values, tensors, torch.float32)
    assert gathered.flat.tolist() == [3, 0, 0, 0, 5, 0, 0, 0]
    gathered.flat.add_(1)
    gathered.scatter()
    assert [tensors[0].item(), tensors[2].item()] == [4, 6]
    assert plan_chunks((0, 0), 4) == plan_chunks((), 4) == ()


def test_a_large_tensor_spans_chunks(small_chunks):
    plan = plan_chunks((100, 3), 8)
    assert [chunk.values.pieces for chunk in plan] == [
        ((0, 0, 32),),
        ((0, 32, 64),),
        ((0, 64, 96),),
        ((0, 96, 100), (1, 0, 3)),
    ]
