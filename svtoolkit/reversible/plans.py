"""Which modules of a chain are recomputed together: plans by the number of modules.

A plan says of every module in order what becomes of its activations. A number is the position of a module whose
activations are stored. A tuple is a segment, of which nothing but the input is kept: backward evaluates it once more,
by the plan that the tuple is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

Plan: TypeAlias = "tuple[int | Plan, ...]"
Planner: TypeAlias = Callable[[int], Plan]
"""Number of modules -> what becomes of them."""


def by_block(count: int) -> Plan:
    """Each module by itself: all inputs are kept, one more forward pass."""
    return tuple((position,) for position in range(count))


def by_root(count: int) -> Plan:
    """About sqrt(count) segments of about as many modules (Chen et al. 2016, sec. 4.1): O(sqrt n), one more pass."""
    return tuple(tuple(range(begin, end)) for begin, end in _shares(0, count, max(1, round(math.sqrt(count)))))


def by_halves(count: int) -> Plan:
    """Halves of halves, down to single modules (Chen et al. 2016, sec. 4.3): O(log n), log2(n) more passes."""
    return _halved(0, count)


def _halved(begin: int, end: int) -> Plan:
    if end - begin <= 1:
        return ((begin,),) if end > begin else ()
    middle = (begin + end + 1) // 2
    return tuple(
        inner if len(inner) > 1 else inner[0]  # a segment of one segment keeps the same input twice
        for inner in (_halved(begin, middle), _halved(middle, end))
    )


def _shares(begin: int, end: int, count: int) -> list[tuple[int, int]]:
    """Bounds of so many parts, as equal as may be."""
    bounds = [begin + (end - begin) * part // count for part in range(count + 1)]
    return [pair for pair in pairwise(bounds) if pair[0] < pair[1]]
