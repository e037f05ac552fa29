"""Additive coupling and the run of couplings whose input is recovered from its output."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from svtoolkit.reversible.grid import grid_bits, largest_exact, snap, snap_
from svtoolkit.reversible.manual_backward import recompute_backward
from svtoolkit.reversible.manual_layers import has_hooks
from svtoolkit.reversible.pooling import InvertiblePooling
from svtoolkit.reversible.recomputation import ParameterGradients, RandomState, autocast_is_on

log = logging.getLogger(__name__)

EXACT_BITS = 14
"""Default grid: 2**-14 for float32 streams, which are exact below 1024 on it; see ``grid_bits`` for wider ones."""


class AdditiveCoupling(nn.Module):
    """y1 = x1 + F(x2), y2 = x2 + G(y1) (Dinh et al. 2014; Gomez et al., NeurIPS 2017, eq. 6).

    Args:
        f, g: residual functions that keep the shape of a stream. They must give the same result for the same input
            when evaluated twice; random numbers that they draw are replayed.
    """

    f: nn.Module
    g: nn.Module

    def __init__(self, f: nn.Module, g: nn.Module) -> None:
        super().__init__()
        self.f = f
        self.g = g

    def forward(self, x1: Tensor, x2: Tensor, bits: int | None = None) -> tuple[Tensor, Tensor]:
        """Two streams of one shape -> two of the same shape; on the grid 2**-bits where bits are given."""
        y1 = x1 + on_grid(self.f(x2), x1.dtype, bits)
        return y1, x2 + on_grid(self.g(y1), x2.dtype, bits)

    def inverse(self, y1: Tensor, y2: Tensor, bits: int | None = None) -> tuple[Tensor, Tensor]:
        """x2 = y2 - G(y1), x1 = y1 - F(x2) (Gomez et al., eq. 7)."""
        x2 = y2 - on_grid(self.g(y1), y2.dtype, bits)
        return y1 - on_grid(self.f(x2), y1.dtype, bits), x2


def on_grid(value: Tensor, dtype: torch.dtype, bits: int | None) -> Tensor:
    """``value`` as a stream of ``dtype``, on the grid 2**-bits where bits are given."""
    value = value.to(dtype)
    return value if bits is None else snap(value, bits)


@dataclass(frozen=True)
class Record:
    """What a forward pass leaves for the inversion, besides its result.

    Attributes:
        bits: the streams are multiples of 2**-bits; None: ordinary arithmetic.
        random: for each residual function in order, the random state to replay; None: it drew nothing.
        stream_dtype: of the streams.
        input_dtype: of what came in, which its gradient has too.
        sizes: (bins, frames) of the streams before each pooling, in order.
    """

    bits: int | None
    random: list[RandomState | None]
    stream_dtype: torch.dtype
    input_dtype: torch.dtype
    sizes: list[tuple[int, int]] = field(default_factory=list)


class ReversibleSequence(nn.Sequential):
    """Couplings one after the other on the two halves of the channels: (batch, channels, ...) -> the same shape.

    An ``InvertiblePooling`` among them reshapes both halves. Called as a module, autograd stores the activations.
    ``run`` and ``invert_`` are the same arithmetic for whoever keeps nothing but the result.

    Attributes:
        exact: streams lie on a grid, so that inversion finds them bit for bit; without, it drifts with depth. Streams
            of half precision (weights in half precision, without autocast) have no grid, and are not inverted.
        exact_bits: the grid of float32 streams is 2**-exact_bits.
    """

    def __init__(self, steps: Iterable[AdditiveCoupling | InvertiblePooling]) -> None:
        super().__init__(*steps)
        self.exact = True
        self.exact_bits = EXACT_BITS
        self._largest: Tensor | None = None
        self._has_warned = False

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, which has seen no stream yet."""
        return self.__dict__ | {"_largest": None}

    def steps(self) -> list[AdditiveCoupling | InvertiblePooling]:
        """Couplings and poolings in order.

        Raises:
            TypeError: something else was put among them.
        """
        steps = [step for step in self if isinstance(step, AdditiveCoupling | InvertiblePooling)]
        if len(steps) < len(self):
            raise TypeError("a reversible sequence is made of couplings, with poolings between them, and nothing else")
        return steps

    def couplings(self) -> list[AdditiveCoupling]:
        """The couplings in order; raises as ``steps``."""
        return [step for step in self.steps() if isinstance(step, AdditiveCoupling)]

    def units(self) -> Sequence[nn.Module]:
        """What can be recomputed by itself, in order."""
        return self.couplings()

    def is_invertible(self) -> bool:
        """Whether it and its steps are as they were built: hooks and sub-classes are for autograd."""
        return not has_hooks(self, *self) and all(
            type(step) is AdditiveCoupling or isinstance(step, InvertiblePooling) for step in self
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ...) -> the same, under autocast in float32 or wider."""
        record = self._begin(x)
        x = x.to(record.stream_dtype)
        if record.bits is not None:
            x = snap(x, record.bits)
        # Copies, as the inversion has them: the layout that a convolution finds decides how it rounds.
        x1, x2 = split_streams(x, record.stream_dtype)
        layout = layout_of(x1)
        for step in self.steps():
            if isinstance(step, AdditiveCoupling):
                x1, x2 = step(x1, x2, bits=record.bits)
            else:
                x1, x2 = (step(stream).contiguous(memory_format=layout) for stream in (x1, x2))
        return torch.cat([x1, x2], dim=1)

    def run(self, x: Tensor) -> tuple[Tensor, Record]:
        """``forward`` without gradient, in place on copies of the halves, with what ``invert_`` needs.

        Raises:
            ValueError: streams of half precision in exact mode.
            RuntimeError: a residual function modified its input.
        """
        record = self._begin(x)
        if self.exact and record.bits is None:
            raise ValueError(
                f"streams of {record.stream_dtype} cannot be recovered from their sums; "
                "keep the weights in float32 and use autocast, or store the activations"
            )
        y1, y2 = split_streams(x, record.stream_dtype)
        bits, layout = record.bits, layout_of(y1)
        if bits is not None:
            y1, y2 = snap_(y1, bits), snap_(y2, bits)
        for step in self.steps():
            if isinstance(step, InvertiblePooling):
                record.sizes.append((y1.shape[2], y1.shape[3]))
                y1 = step(y1).contiguous(memory_format=layout)
                y2 = step(y2).contiguous(memory_format=layout)
                continue
            self._add_to_streams(step, y1, y2, record)
        return torch.cat([y1, y2], dim=1), record

    def _add_to_streams(self, coupling: AdditiveCoupling, y1: Tensor, y2: Tensor, record: Record) -> None:
        """A coupling in place, without gradient."""
        for function, source, target in ((coupling.f, y2, y1), (coupling.g, y1, y2)):
            state, version = RandomState(source.device), source._version
            target.add_(on_grid(function(source), target.dtype, record.bits))
            refuse_in_place(function, source, version)
            record.random.append(state if state.is_consumed() else None)
            if record.bits is not None:
                self._watch(target)

    def pull_back(self, held: list[Tensor], record: Record, gradients: ParameterGradients, *, owned: bool) -> Tensor:
        """Gradient of the input, of its type.

        Args:
            held: the result and its gradient, not modified; the list is emptied as soon as there are copies, so that
                nobody holds what is no longer needed.
            record: of the ``run`` that made the result.
            gradients: to which those of the parameters are added.
            owned: the record will not be asked again, and may be used up.
        """
        layout = layout_of(held[0])
        y = split_streams(held.pop(0), record.stream_dtype)
        streams = split_streams(held.pop(), record.stream_dtype, layout)
        self.invert_(y, streams, record, gradients)
        del y
        return torch.cat(streams, dim=1).to(record.input_dtype)

    def invert_(
        self,
        y: tuple[Tensor, Tensor],
        grad_output: tuple[Tensor, Tensor],
        record: Record,
        gradients: ParameterGradients,
    ) -> None:
        """Turn the streams of the result and their gradients into those of the input, in place (Gomez et al., alg. 1).

        Args:
            y: streams of the result; become those of the input.
            grad_output: their gradients; become those of the input.
            record: of the ``run`` that made y.
            gradients: to which those of the parameters are added.
        """
        (y1, y2), (d1, d2) = y, grad_output
        states, sizes, layout = list(record.random), list(record.sizes), layout_of(y1)
        for step in reversed(self.steps()):
            if isinstance(step, InvertiblePooling):
                bins, frames = sizes.pop()
                for tensor in (*y, *grad_output):
                    pooled = step.inverse(tensor, bins, frames).contiguous(memory_format=layout)
                    tensor.set_(pooled)  # type: ignore[call-overload]  # torch's stubs know storages alone
                continue
            for function, source, target, upstream, downstream in (
                (step.g, y1, y2, d2, d1),
                (step.f, y2, y1, d1, d2),
            ):
                state = states.pop()
                with nullcontext() if state is None else state.restored():
                    dx = recompute_backward(
                        function, source, upstream, gradients, value_hook=_subtract_from(target, record.bits)
                    )
                if dx is not None:
                    downstream.add_(dx)
                del dx

    def _begin(self, x: Tensor) -> Record:
        dtype = torch.promote_types(x.dtype, torch.float32) if autocast_is_on(x.device) else x.dtype
        bits = grid_bits(dtype, self.exact_bits) if self.exact else None
        self._warn_if_outgrown(bits, dtype)
        return Record(bits, [], dtype, x.dtype)

    def _watch(self, stream: Tensor) -> None:
        """Remember the largest value, on the device: reading it now would wait for the device."""
        dense = stream if stream.is_contiguous() else stream.movedim(1, -1)  # reductions like their memory in order
        low, high = torch.aminmax(dense)
        largest = torch.maximum(-low, high)
        self._largest = largest if self._largest is None else torch.maximum(self._largest, largest)

    def largest_value(self) -> float | None:
        """Largest absolute value of a stream since the last reading (waits for the device); None: nothing was run."""
        largest, self._largest = self._largest, None
        return None if largest is None or isinstance(largest, FakeTensor) else float(largest)

    def _warn_if_outgrown(self, bits: int | None, dtype: torch.dtype) -> None:
        """Headroom check, one forward pass late."""
        largest = self.largest_value()
        if bits is None or largest is None or self._has_warned:
            return
        limit = largest_exact(dtype, bits)
        if not largest < limit:
            self._has_warned = True
            log.warning(
                "a reversible stream reached %g, the grid of 2**-%d is exact below %g: inversion has begun to round; "
                "lower exact_bits to %d, or the learning rate",
                largest, bits, limit, _bits_for(largest),
            )  # fmt: skip


def refuse_in_place(module: nn.Module, x: Tensor, version: int) -> None:
    """Raise RuntimeError where a module has modified its input, of which there is no second copy."""
    if x._version != version:
        raise RuntimeError(
            f"{type(module).__name__} modifies its input in place, which nothing could be recomputed from; "
            "begin it with a layer that does not (inplace=False)"
        )


def split_streams(x: Tensor, dtype: torch.dtype, layout: torch.memory_format | None = None) -> tuple[Tensor, Tensor]:
    """Copies of the two halves of the channels, in the memory format of ``x`` where no other is given."""
    layout = layout_of(x) if layout is None else layout
    x1, x2 = (half.to(dtype, copy=True, memory_format=layout) for half in x.tensor_split(2, dim=1))
    return x1, x2


def layout_of(x: Tensor) -> torch.memory_format:
    """Channels last where a map of several channels is so, else contiguous."""
    is_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if is_last else torch.contiguous_format


def _subtract_from(target: Tensor, bits: int | None) -> Callable[[Tensor], object]:
    def subtract(value: Tensor) -> None:
        value = value.to(target.dtype)
        target.sub_(value if bits is None else snap_(value, bits))

    return subtract


def _bits_for(largest: float) -> int:
    """Finest ``exact_bits`` that holds twice the value; 0 where none does."""
    room = largest_exact(torch.float32, 0)
    return max(0, math.floor(math.log2(room / (2 * largest)))) if math.isfinite(largest) else 0
