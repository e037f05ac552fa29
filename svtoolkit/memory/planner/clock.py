"""Seconds of operations by a card's rates: those of their arithmetic, or of the memory that they read and write."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch

from svtoolkit.memory.observer import Observer
from svtoolkit.memory.operations import count_flops, passes, tensors_of


@dataclass(frozen=True)
class Rates:
    """What a device sustains.

    Attributes:
        operations: a second; a multiplication with addition is two.
        bytes: that it reads and writes in a second.
    """

    operations: float = 7e12
    bytes: float = 5e11


CONSUMER_GPU = Rates()
"""Of a 2080 Ti, by assumption: half of its arithmetic in float32, four fifths of its bandwidth (616 GB/s)."""

ALLOCATIONS = frozenset(
    {torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided, torch.ops.aten.new_empty,
     torch.ops.aten.new_empty_strided}
)  # fmt: skip


class Clock(Observer):
    """Context that adds up seconds as operations are dispatched; real or fake tensors alike.

    Attributes:
        seconds: so far.
    """

    def __init__(self, rates: Rates) -> None:
        super().__init__()
        self.rates = rates
        self.seconds = 0.0

    def mark(self) -> float:
        """As ``svtoolkit.reversible.chunks.Counts``."""
        return self.seconds

    def repeat(self, mark: float, times: int) -> None:
        """As ``svtoolkit.reversible.chunks.Counts``."""
        self.seconds += times * (self.seconds - mark)

    def see(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any, form: Hashable) -> None:
        operation = func._overloadpacket
        if not func.is_view and operation not in ALLOCATIONS and func.namespace != "prim":
            moved: float = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of((args, result)))
            moved = moved * passes(operation, args)
            arithmetic = count_flops(operation, args, kwargs, result) / self.rates.operations
            self.seconds += max(arithmetic, moved / self.rates.bytes)
