"""A run of residual functions with momentum, at full width, whose input is recovered from its output.

    v' = m v + F(x)          x = x' - v'
    x' = x + v'              v = (v' - F(x)) / m

With m = 0 this is an ordinary residual network, which cannot be undone; with any other m it can (Sander et al., ICML
2021, "Momentum Residual Neural Networks"). With m = -1 it is the leapfrog or midpoint scheme, x'' = x + F(x') (Chang et
al., AAAI 2018, "Reversible Architectures for Arbitrarily Deep Residual Neural Networks"), which loses nothing. Between
them is m = -2**-b: the low b bits of v leave the sum. They are kept, b bits a value, as Maclaurin et al. (ICML 2015,
"Gradient-based Hyperparameter Optimization through Reversible Learning") keep those of the momentum of an optimizer,
and division by m is then exact. A step shrinks volumes by 2**-b a value, so that no scheme with the same function could
keep less.

The first function finds v = 0: x' = x + F(x), and nothing is kept of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.reversible.coupling import Record, ReversibleSequence, layout_of, on_grid, refuse_in_place
from svtoolkit.reversible.grid import snap, snap_
from svtoolkit.reversible.manual_backward import recompute_backward
from svtoolkit.reversible.manual_layers import has_hooks
from svtoolkit.reversible.parts import parts
from svtoolkit.reversible.recomputation import ParameterGradients, RandomState

PACKED_BITS = (0, 1, 2, 4, 8)
"""Bits of a remainder, a whole number of which fill a byte; 0: none."""


@dataclass(frozen=True)
class MomentumRecord(Record):
    """What the inversion needs beside x.

    Attributes:
        velocity: v behind the last function, alone in the list.
        remainders: packed, of every function but the first.
    """

    velocity: list[Tensor] = field(default_factory=list)
    remainders: list[list[Tensor]] = field(default_factory=list)


class MomentumSequence(ReversibleSequence):
    """Residual functions one after the other with momentum: (batch, channels, ...) -> the same shape.

    Args:
        functions: modules that keep the shape; as those of an ``AdditiveCoupling``.
        bits: m = -2**-bits, and so many bits a value are kept of each function but the first; 0: none are.

    Raises:
        ValueError: bits that do not fill bytes, or no functions.
    """

    def __init__(self, functions: Iterable[nn.Module], bits: int) -> None:
        super().__init__(())
        if bits not in PACKED_BITS:
            raise ValueError(f"{bits} bits a value, expected one of {', '.join(map(str, PACKED_BITS))}")
        self.extend(functions)
        if len(self) == 0:
            raise ValueError("no functions, expected one or more")
        self.bits = bits
        self.momentum = -(2.0**-bits)

    def units(self) -> list[nn.Module]:
        """Its functions."""
        return list(self)

    def is_invertible(self) -> bool:
        """Whether it and its functions are as they were built; remainders need a grid."""
        return not has_hooks(self, *self) and (self.exact or self.bits == 0)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ...) -> the same, under autocast in float32 or wider."""
        record = self._begin(x)
        x = x.to(record.stream_dtype)
        if record.bits is not None:
            x = snap(x, record.bits)
        velocity: Tensor | None = None
        for function in self:
            value = on_grid(function(x), x.dtype, record.bits)
            velocity = value if velocity is None else value + _Decay.apply(velocity, self.momentum, record.bits)
            x = x + velocity
        return x

    def run(self, x: Tensor) -> tuple[Tensor, MomentumRecord]:
        """``forward`` without gradient, with what ``pull_back`` needs.

        Raises:
            ValueError: streams of half precision, which have no grid.
            RuntimeError: a function modified its input.
        """
        begun = self._begin(x)
        self._refuse_without_grid(begun)
        bits, random, remainders = begun.bits, begun.random, []
        x = x.to(begun.stream_dtype, copy=True, memory_format=layout_of(x))
        if bits is not None:
            snap_(x, bits)
        velocity: Tensor | None = None
        for function in self:
            state, version = RandomState(x.device), x._version
            value = on_grid(function(x), x.dtype, bits)
            refuse_in_place(function, x, version)
            random.append(state if state.is_consumed() else None)
            if velocity is None:
                velocity = value
            else:
                remainders.append(self._decay_(velocity, bits))
                velocity.add_(value)
            del value
            x.add_(velocity)
            if bits is not None:
                self._watch(velocity)
                self._watch(x)
        assert velocity is not None
        return x, MomentumRecord(
            bits, random, begun.stream_dtype, begun.input_dtype, velocity=[velocity], remainders=remainders
        )

    def pull_back(self, held: list[Tensor], record: Record, gradients: ParameterGradients, *, owned: bool) -> Tensor:
        """Gradient of the input; see ``ReversibleSequence.pull_back``."""
        assert isinstance(record, MomentumRecord)
        dtype, layout = record.stream_dtype, layout_of(held[0])
        x = held.pop(0).to(dtype, copy=True, memory_format=layout)
        dx = held.pop().to(dtype, copy=True, memory_format=layout)
        velocity = record.velocity[0] if owned else record.velocity[0].clone()
        remainders, states = list(record.remainders), list(record.random)
        if owned:
            record.velocity.clear()
            record.remainders.clear()
        dv: Tensor | None = None
        for position in reversed(range(len(self))):
            function, state = self[position], states.pop()
            x.sub_(velocity)
            dv = dx.clone() if dv is None else dv.add_(dx)
            kept = remainders.pop() if position else []
            recover = self._recover(velocity, kept, record.bits) if position else _ignore
            with nullcontext() if state is None else state.restored():
                change = recompute_backward(function, x, dv, gradients, value_hook=recover)
            if change is not None:
                dx.add_(change)
            del change, kept, recover
            dv.mul_(self.momentum)
        return dx.to(record.input_dtype)

    def _refuse_without_grid(self, record: Record) -> None:
        if record.bits is None and (self.exact or self.bits):
            raise ValueError(
                f"streams of {record.stream_dtype} cannot be recovered from their sums; "
                "keep the weights in float32 and use autocast, or store the activations"
            )

    def _decay_(self, velocity: Tensor, grid: int | None) -> list[Tensor]:
        """Multiply by the momentum in place, and return the bits that this loses, packed."""
        if self.bits == 0:
            velocity.neg_()
            return []
        assert grid is not None
        return [_shift_(part, self.bits, grid) for part in parts(velocity)]

    def _recover(self, velocity: Tensor, kept: list[Tensor], grid: int | None) -> Callable[[Tensor], object]:
        """Turns v behind a function into v before it, in place, once the value of the function is known."""

        def recover(value: Tensor) -> None:
            value = value.to(velocity.dtype)
            velocity.sub_(value if grid is None else snap_(value, grid))
            if self.bits == 0:
                velocity.neg_()
                return
            assert grid is not None
            velocity.mul_(-(2.0**self.bits))
            for part, packed in zip(parts(velocity), kept, strict=True):
                part.add_(_unpack(packed, self.bits, part), alpha=2.0**-grid)

        return recover


def _ignore(value: Tensor) -> None:
    """Of the first function, before which v is zero."""


def _shift_(velocity: Tensor, bits: int, grid: int) -> Tensor:
    """Multiples of 2**-grid divided by -2**bits in place, rounded to such multiples; what is left over, packed."""
    quotient = velocity.mul(2.0 ** (grid - bits)).floor_().mul_(2.0**-grid)
    left = velocity.sub_(quotient, alpha=2.0**bits).mul_(2.0**grid).to(torch.uint8)
    torch.neg(quotient, out=velocity)
    return _pack(left, bits)


def _pack(codes: Tensor, bits: int) -> Tensor:
    """Numbers below 2**bits of any shape, as bytes in a row."""
    if bits == 8:
        return codes.reshape(-1)
    share = 8 // bits
    flat = codes.reshape(-1)
    length = math.ceil(flat.numel() / share)
    rows = flat.new_zeros(share * length)
    rows[: flat.numel()] = flat
    rows = rows.view(share, length)
    packed = rows[0].clone()
    for position in range(1, share):
        packed |= rows[position] << (bits * position)
    return packed


def _unpack(packed: Tensor, bits: int, like: Tensor) -> Tensor:
    """The numbers of ``_pack`` in the shape of ``like``."""
    if bits == 8:
        return packed.view(like.shape)
    shifts = [(packed >> (bits * position)) & (2**bits - 1) for position in range(8 // bits)]
    return torch.cat(shifts)[: like.numel()].view(like.shape)


class _Decay(torch.autograd.Function):
    """Velocity times momentum, on the grid; the gradient is that of the product."""

    @staticmethod
    def forward(ctx: Any, velocity: Tensor, momentum: float, grid: int | None) -> Tensor:
        ctx.momentum = momentum
        if grid is None or momentum == -1.0:
            return velocity * momentum
        return velocity.mul(-momentum * 2.0**grid).floor_().mul_(-(2.0**-grid))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.momentum, None, None
