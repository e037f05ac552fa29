"""Forward and backward pass as they grow with the batch: memory and work of any other one.

Each moment is a straight line in the batch, and the peak the highest of all of them, exactly, as long as the same
operations run for any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from svtoolkit.memory.operations import Work


class Level(NamedTuple):
    """One moment: bytes that any batch takes, and bytes that each crop adds; weights and optimizer state are left out.

    Attributes:
        gradients: of the fixed bytes, those of gradients.
        activations, transients: bytes of each crop by what they are for.
    """

    fixed: int
    per_crop: float
    gradients: int
    activations: float
    transients: float

    def bytes(self, crops: int) -> float:
        return self.fixed + self.per_crop * crops


@dataclass(frozen=True)
class StepProfile:
    """Forward and backward pass of a network and its head under one strategy, in one precision.

    Attributes:
        strategy: in force.
        weights: bytes of weights and buffers, the copy of the buffers that a step goes back to and a moving average of
            both among them.
        gradients: bytes of all gradients, the buckets of several devices among them.
        levels: moments that are highest for some batch.
        accumulating: the same, where gradients of an earlier micro-batch are there already.
        work: each operation, and how often it runs.
        largest_convolution: bytes of input and result of each crop, of the convolution where that is most.
        fewest: crops that a forward pass takes: 2 where a BatchNorm has one value of each crop.
    """

    strategy: str
    weights: int
    gradients: int
    levels: list[Level]
    accumulating: list[Level]
    work: list[tuple[Work, int]]
    largest_convolution: float
    fewest: int

    def highest(self, crops: int, *, accumulates: bool = False) -> Level:
        """The moment of the peak of a batch."""
        return max(self.accumulating if accumulates else self.levels, key=lambda level: level.bytes(crops))

    def peak_bytes(self, crops: int, *, accumulates: bool = False) -> float:
        """Bytes of tensors at the peak of forward and backward pass, without the optimizer's state."""
        return self.weights + self.highest(crops, accumulates=accumulates).bytes(crops)

    @cached_property
    def counted(self) -> dict[Work, int]:
        """The work by itself."""
        return dict(self.work)

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> StepProfile:
        """What ``dataclasses.asdict`` made of one, after JSON."""
        return cls(
            **{
                **stored,
                "levels": [Level(*each) for each in stored["levels"]],
                "accumulating": [Level(*each) for each in stored["accumulating"]],
                "work": [(Work(*work), times) for work, times in stored["work"]],
            }
        )


def envelope(levels: Iterable[Level]) -> list[Level]:
    """Those that are highest for some batch from 1 on, in the order of their slopes."""
    highest: list[Level] = []
    for level in sorted(set(levels), key=lambda each: (each.per_crop, each.fixed)):
        while highest and (
            level.bytes(1) >= highest[-1].bytes(1)
            or (len(highest) > 1 and _crossing(highest[-2], level) <= _crossing(highest[-2], highest[-1]))
        ):
            highest.pop()
        highest.append(level)
    return highest


def _crossing(lower: Level, steeper: Level) -> float:
    """The batch from which on the steeper of two is higher."""
    if steeper.per_crop == lower.per_crop:
        return 0.0 if steeper.fixed >= lower.fixed else float("inf")
    return (lower.fixed - steeper.fixed) / (steeper.per_crop - lower.per_crop)
