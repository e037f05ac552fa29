"""Exact arithmetic: a dyadic grid on which floating-point numbers are added and subtracted without rounding.

Numbers j * 2**-bits with |j| < 2**24 are float32 values (|j| < 2**53: float64), and so are their sums and differences
while these stay inside that range. A stream that begins on the grid and to which only multiples of 2**-bits are added
is therefore recovered bit for bit by subtracting the same multiples again (the idea of Zhang et al. 2024, "On exact
bit-level reversible transformers", applied to additive coupling).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def snap(x: Tensor, bits: int) -> Tensor:
    """Nearest multiple of 2**-bits, ties to even; the gradient passes straight through (as if it were the identity)."""
    return _Snap.apply(x, bits)


def snap_(x: Tensor, bits: int) -> Tensor:
    """``snap`` in place, for tensors that need no gradient."""
    return x.mul_(2.0**bits).round_().mul_(2.0**-bits)


def grid_bits(dtype: torch.dtype, exact_bits: int) -> int | None:
    """Streams are multiples of 2**-(these): ``exact_bits`` in float32, 29 more in float64, which is as much finer.

    Both are exact below the same limit. None: types of half precision have no grid.
    """
    return {torch.float32: exact_bits, torch.float64: exact_bits + 29}.get(dtype)


def largest_exact(dtype: torch.dtype, bits: int) -> float:
    """Absolute value below which a stream of ``dtype`` stays on the grid of ``bits``: 2**(24 - bits) in float32."""
    return 2.0 ** (1 - round(math.log2(torch.finfo(dtype).eps)) - bits)


class _Snap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bits: int) -> Tensor:
        return snap_(x.clone(), bits)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
