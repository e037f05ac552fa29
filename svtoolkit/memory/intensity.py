"""Arithmetic of what runs: multiplications and additions of convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

BY_WEIGHT = frozenset({torch.conv1d, torch.conv2d, F.linear})
"""Functions of an input and a weight (out, ...), each value of whose result is a product with one row of it."""
PRODUCTS = frozenset({torch.matmul, torch.bmm, torch.mm, Tensor.matmul, Tensor.__matmul__, Tensor.bmm, Tensor.mm})


class CountFlops(TorchFunctionMode):
    """Counts while it is entered.

    Attributes:
        flops: floating-point operations; a multiplication and an addition are two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in BY_WEIGHT:
            weight = args[1] if len(args) > 1 else (kwargs or {})["weight"]
            self.flops += 2 * result.numel() * weight[0].numel()
        elif func in PRODUCTS:
            self.flops += 2 * result.numel() * args[0].shape[-1]
        return result
