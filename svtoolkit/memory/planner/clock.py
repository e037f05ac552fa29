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
        self._known = _KNOWN.setdefault(rates, {})

    def mark(self) -> float:
        """As ``svtoolkit.reversible.parts.Counts``."""
        return self.seconds

    def repeat(self, mark: float, times: int) -> None:
        """As ``svtoolkit.reversible.parts.Counts``."""
        self.seconds += times * (self.seconds - mark)

    def see(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any, form: Hashable) -> None:
        seconds = None if form is None else self._known.get(form)
        if seconds is None:
            seconds = self._seconds(func, args, kwargs, result)
            if form is not None:
                self._known[form] = seconds
        self.seconds += seconds

    def _seconds(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> float:
        operation = func._overloadpacket
        if func.is_view or operation in ALLOCATIONS or func.namespace == "prim":
            return 0.0
        moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of((args, result)))
        arithmetic = count_flops(operation, args, kwargs, result) / self.rates.operations
        return max(arithmetic, moved * passes(operation, args) / self.rates.bytes)


_KNOWN: dict[Rates, dict[Hashable, float]] = {}
"""Seconds of operations that were seen, by their forms."""
