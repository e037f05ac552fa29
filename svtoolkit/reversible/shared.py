"""Values of a forward pass that several later places read, mixed: each kept once, and what is mixed made again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from svtoolkit.reversible.batch_norms import product_sums
from svtoolkit.reversible.parts import parts_of
from svtoolkit.reversible.recipes import Kept, Recipe, made_again
from svtoolkit.reversible.recomputation import AutocastState, graph_is_kept
from svtoolkit.reversible.stash import Stash


@dataclass(frozen=True)
class Sharing:
    """Shared values are kept in the form before their ends, and no mixture is.

    Attributes:
        stash: how each is kept from forward to backward; None: as it is.
    """

    stash: Stash | None = None


class SharesValues(nn.Module):
    """A network of which several places read the same values.

    Attributes:
        sharing: what becomes of the values; None: autograd stores what it needs.
    """

    sharing: Sharing | None = None


def share_values(network: nn.Module, sharing: Sharing | None) -> None:
    """Of a network of which several places read the same values, if it is one."""
    if isinstance(network, SharesValues):
        network.sharing = sharing


class SharedValues:
    """Values of one forward pass.

    Args:
        sharing: of the network.
    """

    def __init__(self, sharing: Sharing | None) -> None:
        self._sharing = sharing
        self._values: list[_Value] = []

    def add(self, value: Tensor, end: nn.Module) -> None:
        """One more: (batch, ...).

        Args:
            end: what makes of it what is read, for each utterance by itself; without buffers.
        """
        if self._sharing is None:
            value, end = end(value), nn.Identity()
        self._values.append(_Value(value, end, self._sharing.stash if self._sharing else None))

    def mixed(self, weights: Sequence[Tensor]) -> Tensor:
        """Sum of what is read of all values, each times its weight: (1, rows, 1, ...) or of ones alone."""
        if self._sharing is None:
            found = self._values[0].value * weights[0]
            for each, weight in zip(self._values[1:], weights[1:], strict=True):
                found = found + each.value * weight
            return found
        with torch.no_grad():
            terms = [(each.value, each.end, weight) for each, weight in zip(self._values, weights, strict=True)]
            found = _mixed(terms, is_first=True)
        if torch.is_grad_enabled():
            for each, weight in zip(self._values, weights, strict=True):
                found = _Read.apply(found, each.value, weight, each.kept(), each.end, *each.end.parameters())
        return found

    def only(self) -> Tensor:
        """What is read of a single value."""
        (each,) = self._values
        return each.end(each.value)

    def made_again(self, x: Tensor, weights: Sequence[Tensor] | None) -> AbstractContextManager[None]:
        """Context in which autograd keeps how ``x`` is made where it would keep it.

        Args:
            weights: with which it was mixed; None: it is the only value.
        """
        if self._sharing is None or not torch.is_grad_enabled():
            return nullcontext()
        kept = [(each.kept(), each.end) for each in self._values]

        def make() -> Tensor:
            if weights is None:
                ((only, end),) = kept
                return end(only.value())
            terms = [(each.value(), end, weight) for (each, end), weight in zip(kept, weights, strict=True)]
            return _mixed(terms, is_first=False)

        return made_again(x, Recipe(make, AutocastState.capture(x.device)))


class Packed(NamedTuple):
    """What a stash made of a tensor."""

    content: Any
    stash: Stash

    def value(self) -> Tensor:
        """The tensor, or nearly."""
        return self.stash.unpack(self.content)


Form: TypeAlias = Kept | Packed


class _Value:
    """One that is there until the forward pass ends, and what is kept of it."""

    def __init__(self, value: Tensor, end: nn.Module, stash: Stash | None) -> None:
        self.value, self.end, self._stash = value, end, stash
        self._kept: Form | None = None

    def kept(self) -> Form:
        """The same for all who read it."""
        if self._kept is None:
            with torch.no_grad():
                value = self.value.detach()
                self._kept = (
                    Kept(value, value._version) if self._stash is None else Packed(self._stash.pack(value), self._stash)
                )
        return self._kept


class Repetition(nn.Module):
    """Every value of the last dimension so many times; (..., frames) -> (..., frames * factor)."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        if self.factor == 1:
            return x
        if torch.jit.is_tracing():  # a traced repeat_interleave would keep the number of frames
            return x.unsqueeze(x.ndim).expand(*(-1 for _ in x.shape), self.factor).reshape(*x.shape[:-1], -1)
        return x.repeat_interleave(self.factor, dim=-1)


def _factor(end: nn.Module) -> int | None:
    """Of an end that only repeats; None: it does something else."""
    if isinstance(end, nn.Identity):
        return 1
    return end.factor if isinstance(end, Repetition) else None


def _grouped(x: Tensor, factor: int) -> Tensor:
    """(..., frames) -> (..., frames / factor, factor), the same memory."""
    return x.unflatten(-1, (-1, factor))


def _mixed(terms: Sequence[tuple[Tensor, nn.Module, Tensor]], *, is_first: bool) -> Tensor:
    """Sum of end(value) * weight, in the order in which they come.

    Args:
        is_first: to the bit what autograd would make; else up to rounding, in one pass for each.
    """
    (value, end, weight), *others = terms
    found = end(value) * weight
    for value, end, weight in others:
        factor = _factor(end)
        if factor is not None and not is_first:
            _grouped(found, factor).addcmul_(value.unsqueeze(-1), weight.unsqueeze(-1))
            continue
        for chunk in parts_of(len(value)):
            if factor is None:
                found[chunk].add_(end(value[chunk]) * weight)
            else:
                _grouped(found[chunk], factor).add_((value[chunk] * weight).unsqueeze(-1))
    return found


class _Read(torch.autograd.Function):
    """One term of a mixture that is there already: the gradient of one value after the other, each added up at once."""

    @staticmethod
    def forward(
        ctx: Any, mixed: Tensor, value: Tensor, weight: Tensor, kept: Form, end: nn.Module, *parameters: nn.Parameter
    ) -> Tensor:
        ctx.kept, ctx.end, ctx.autocast = kept, end, AutocastState.capture(value.device)
        ctx.save_for_backward(weight, *parameters)
        ctx.mark_dirty(mixed)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.kept is None:
            raise RuntimeError(
                "a mixture of shared values was to be differentiated a second time after they were freed; "
                "ask for retain_graph=True the first time"
            )
        weight, *parameters = ctx.saved_tensors
        value = ctx.kept.value()
        if not graph_is_kept():
            ctx.kept = None
        before = grad_output if ctx.needs_input_grad[0] else None
        factor = _factor(ctx.end)
        if factor is not None:
            upstream = _grouped(grad_output, factor).sum(-1) if factor > 1 else grad_output
            of_weight = product_sums(upstream, value.to(upstream.dtype)).sum_to_size(weight.shape)
            return before, (upstream * weight).to(value.dtype), of_weight, None, None
        wanted = [each for each, needed in zip(parameters, ctx.needs_input_grad[5:], strict=True) if needed]
        sums: dict[Tensor, Tensor] = {}
        of_value = torch.empty_like(value)
        for chunk in parts_of(len(value)):
            with torch.enable_grad(), ctx.autocast.restored():
                part = value[chunk].detach().requires_grad_()
                read = ctx.end(part)
            upstream = grad_output[chunk]
            _add(sums, weight, (upstream * read.detach()).sum_to_size(weight.shape))
            found = torch.autograd.grad(read, [part, *wanted], (upstream * weight).to(read.dtype))
            of_value[chunk] = found[0]
            for parameter, gradient in zip(wanted, found[1:], strict=True):
                _add(sums, parameter, gradient)
        return before, of_value, sums[weight], None, None, *(sums.get(each) for each in parameters)


def _add(sums: dict[Tensor, Tensor], key: Tensor, gradient: Tensor) -> None:
    sums[key] = sums[key] + gradient if key in sums else gradient
