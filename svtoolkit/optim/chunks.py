"""Many tensors as a few flat stretches of bounded size.

A stretch is worked on as a whole, so that the number of operations depends on the number of values, not of tensors, and
the memory it takes depends on neither.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK_VALUES = 2**20
"""Values in a chunk: 4 MiB for every float32 copy of it that an update holds."""


@dataclass(frozen=True)
class Stretch:
    """Where the values of a flat stretch come from.

    Attributes:
        pieces: (number of the tensor, first value, end), in the order of ``Tensor.flatten``.
        sizes: of the pieces, each followed by the size of the padding after it.
    """

    pieces: tuple[tuple[int, int, int], ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Chunk:
    """A stretch of values whose pieces all begin a block, and the stretch of those blocks."""

    values: Stretch
    blocks: Stretch


@functools.lru_cache(maxsize=64)
def plan_chunks(lengths: tuple[int, ...], block_size: int) -> tuple[Chunk, ...]:
    """Cut tensors into chunks of at most ``CHUNK_VALUES`` values (or one block), padded to whole blocks.

    No block holds values of two tensors: what a tensor is quantised to does not depend on its neighbours.
    """
    limit = max(CHUNK_VALUES // block_size, 1)
    chunks = []
    pieces: list[tuple[int, int, int]] = []
    free = limit
    for tensor, length in enumerate(lengths):
        start = 0
        while start < length:
            stop = min(length, start + free * block_size)
            pieces.append((tensor, start, stop))
            free -= -(-(stop - start) // block_size)
            start = stop
            if not free:
                chunks.append(_chunk(pieces, block_size))
                pieces, free = [], limit
    return (*chunks, _chunk(pieces, block_size)) if pieces else tuple(chunks)


def _chunk(pieces: Sequence[tuple[int, int, int]], block_size: int) -> Chunk:
    blocks = [(tensor, start // block_size, -(-stop // block_size)) for tensor, start, stop in pieces]
    return Chunk(_stretch(pieces, block_size), _stretch(blocks, 1))


def _stretch(pieces: Sequence[tuple[int, int, int]], multiple: int) -> Stretch:
    lengths = [stop - start for _, start, stop in pieces]
    return Stretch(tuple(pieces), tuple(size for length in lengths for size in (length, -length % multiple)))


class Gathered:
    """A flat copy of the values of a stretch.

    Args:
        stretch: which values.
        tensors: those that its pieces count, of any memory layout.
        dtype: of the copy.
        padding: what stands where no tensor has a value.

    Attributes:
        flat: the copy, to be worked on in place.
    """

    def __init__(self, stretch: Stretch, tensors: Sequence[Tensor], dtype: torch.dtype, padding: float = 0) -> None:
        self.flat = torch.full((sum(stretch.sizes),), padding, dtype=dtype, device=tensors[0].device)
        self._copies: list[Tensor] = []
        self._places: list[Tensor] = []
        for copy, (tensor, start, stop) in zip(self.flat.split(stretch.sizes)[::2], stretch.pieces, strict=True):
            for place in _boxes(tensors[tensor], start, stop):
                self._copies.append(copy[: place.numel()].view(place.shape))
                self._places.append(place)
                copy = copy[place.numel() :]
        torch._foreach_copy_(self._copies, self._places)

    def scatter(self) -> None:
        """Write the copy back to where it came from."""
        torch._foreach_copy_(self._places, self._copies)


def _boxes(tensor: Tensor, start: int, stop: int) -> Iterator[Tensor]:
    """Views that together are ``tensor.flatten()[start:stop]``, whatever the memory layout.

    One for a contiguous or a whole tensor, else at most 2 * dimensions - 1: the rest of a first row, whole rows, the
    begin of a last row, and rows cut in the same way.
    """
    if start >= stop:
        return
    if start == 0 and stop == tensor.numel():
        yield tensor
    elif tensor.is_contiguous():
        yield tensor.view(-1)[start:stop]
    else:
        row = tensor.numel() // len(tensor)
        first, last = -(-start // row), stop // row
        if first > last:
            yield from _boxes(tensor[last], start - last * row, stop - last * row)
            return
        if start < first * row:
            yield from _boxes(tensor[first - 1], start - (first - 1) * row, row)
        if first < last:
            yield tensor[first:last]
        if last * row < stop:
            yield from _boxes(tensor[last], 0, stop - last * row)
