"""Least times for every number of slots of memory, and what comes first in the plans that take them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from svtoolkit.memory.planner.costs import Option

Times: TypeAlias = NDArray[np.float64]
"""(..., slots + 1) seconds; infinite where so many slots are too few."""
Choices: TypeAlias = NDArray[np.int16]


class Best(NamedTuple):
    """Least times of a stretch, and what comes first in it.

    Index 1: what comes in is held by somebody else, and not counted; 0: it is counted while it is there.
    """

    times: tuple[Times, Times]
    choices: tuple[Choices, Choices]


class SizedOption:
    """An option in slots of so many bytes."""

    def __init__(self, number: int, option: Option, slot: int) -> None:
        def up(size: int) -> int:
            return -(-size // slot)

        self.number, self.seconds, self.recomputed = number, option.seconds, option.recomputed
        self.again = option.again
        self.gradient_seconds, self.travel = option.gradient_seconds, option.travel
        self.holds_input, self.holds_result = option.holds_input, option.holds_result
        self.seconds_at_end, forward_at_end = option.at_end
        self.forward_at_end = up(forward_at_end)
        self.kept, self.forward = up(option.kept), up(option.forward)
        self.backward = up(option.backward)


def later(times: Times, shift: int, seconds: float, least: int | NDArray[np.int64]) -> Times:
    """Times of what leaves so many slots fewer to what follows, takes so many seconds, and has at least so many slots.

    Args:
        times: (..., slots + 1), of what follows.
        least: one number, or one a row.
    """
    width = times.shape[-1]
    begin = min(width, max(shift, least) if isinstance(least, int) else shift)
    found = np.empty(times.shape)
    found[..., :begin] = np.inf
    if begin < width:
        np.add(times[..., begin - shift : width - shift], seconds, out=found[..., begin:])
    if not isinstance(least, int):
        np.copyto(found, np.inf, where=np.arange(width) < least[:, None])
    return found


def improve(times: Times, choices: Choices, others: Times, choice: int | Choices, begin: int = 0) -> None:
    """Take others where they are less, from so many slots on."""
    times, choices, others = times[..., begin:], choices[..., begin:], others[..., begin:]
    better = others < times
    np.copyto(times, others, where=better)
    np.copyto(choices, choice if isinstance(choice, int) else choice[..., begin:], where=better)


def empty(*shape: int) -> tuple[Times, Choices]:
    """No plan."""
    return np.full(shape, np.inf), np.full(shape, -1, np.int16)
