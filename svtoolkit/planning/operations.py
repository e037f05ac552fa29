"""Floating-point operations, counted as they are dispatched."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class Operations(TorchDispatchMode):
    """Context that sums up torch's own counts of operations, of which a multiplication with addition is two.

    FlopCounterMode would need a pass of its own: it hooks into modules and gradients to tell whose an operation is.

    Attributes:
        count: so far.
    """

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        counted = flop_registry.get(func._overloadpacket)
        if counted is not None:
            self.count += counted(*args, **(kwargs or {}), out_val=result)
        return result
