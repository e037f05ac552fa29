"""Parts of a batch, one after the other: what only helps is there for one of them at a time.

All that divides a batch does it here, since what grows with a part is known by its size (``svtoolkit.memory.growth``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from torch import Tensor

PARTS = 16
"""Into which a batch is divided: what a gradient needs beside its input is a sixteenth, and kernels still have work."""


class Counts(Protocol):
    """Of what operations do or cost."""

    def mark(self) -> Any:
        """What is counted so far."""

    def repeat(self, mark: Any, times: int) -> None:
        """Count what was counted since a mark so many times more."""


_COUNTS: ContextVar[Counts | None] = ContextVar("counts", default=None)


@contextmanager
def two_for_all(counts: Counts) -> Iterator[None]:
    """Context for tensors without content: two parts are evaluated, and the second is counted for all that follow."""
    token = _COUNTS.set(counts)
    try:
        yield
    finally:
        _COUNTS.reset(token)


def parts_of(batch: int) -> Iterator[slice]:
    """Of a batch, one after the other."""
    size = _size(batch)
    begins, counts = range(0, batch, size), _COUNTS.get()
    if counts is None:
        yield from (slice(begin, begin + size) for begin in begins)
        return
    yield slice(0, size)
    before = counts.mark()
    if len(begins) > 1:
        yield slice(size, 2 * size)  # as the first, but that sums are there
        counts.repeat(before, len(begins) - 2)


def parts(x: Tensor) -> tuple[Tensor, ...]:
    """Views of all of them."""
    return x.split(_size(len(x)))


def _size(batch: int) -> int:
    return max(1, -(-batch // PARTS))
