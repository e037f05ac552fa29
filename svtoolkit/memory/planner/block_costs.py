"""What a block costs under every way, seen by the ledger while the executor of plans runs it on fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from svtoolkit.memory.host_stash import HostMemory, seconds_of
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.planner.clock import Clock, Rates
from svtoolkit.memory.planner.costs import Block, Option
from svtoolkit.memory.planner.stopwatch import Stopwatch
from svtoolkit.reversible import EightBits, ReversibleSequence, Stash
from svtoolkit.reversible.batch_norms import known_norms, recorded_norms
from svtoolkit.reversible.chunks import can_chunk
from svtoolkit.reversible.manual_backward import can_group, is_manual
from svtoolkit.reversible.parts import two_for_all
from svtoolkit.reversible.plans import Part, Way
from svtoolkit.reversible.segments import run_parts

STORED: tuple[Way, ...] = ("store", "norm", "expand")


class Treatment(NamedTuple):
    """A way to treat one block, as ``Option`` has it."""

    way: Way
    recomputed: bool = False
    stash: Stash | None = None


class Form(NamedTuple):
    """Of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: Tensor) -> Form:
        return Form(tuple(tensor.shape), tensor.dtype)

    @property
    def bytes(self) -> int:
        """Of the tensor."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta").untyped_storage().nbytes()


@dataclass
class BlockCosts:
    """Measures blocks, of those that are alike the first alone.

    Args:
        rates: of the device whose time is counted.
        precision: type that autocast chooses; None: it is off.
        stashes: whether inputs in 8 bits are ways, too.
        host: where inputs may wait; None: on the device alone.
        stopwatch: that takes the time of blocks; None: it is counted.
    """

    rates: Rates
    precision: torch.dtype | None = None
    stashes: bool = False
    host: HostMemory | None = None
    stopwatch: Stopwatch | None = None
    _known: dict[Any, Block] = field(default_factory=dict)

    def of(self, block: nn.Module, form: Form) -> Block:
        """Of a block whose input has this form; its parameters are fake, and so is what is made of them."""
        key = (tuple(identity(block)), form)
        if key not in self._known:
            self._known[key] = self._measure(block, form)
        return self._known[key]

    def autocast(self) -> AbstractContextManager[Any]:
        """Context of a forward pass."""
        return nullcontext() if self.precision is None else torch.autocast("cpu", dtype=self.precision)

    def _measure(self, block: nn.Module, form: Form) -> Block:
        result, is_view, seconds, saved, forward = _Probe(block, form, self).evaluate()
        options: list[Option] = []
        again: dict[Way, float] = {}
        for treatment in _treatments(block, stashes=self.stashes and not is_view):
            if treatment.way == "chunks" and not _is_deep(options, form.bytes + result.bytes):
                continue
            option = _Probe(block, form, self).option(treatment, result)
            option = replace(option, seconds_again=option.seconds - saved)
            if treatment.recomputed and treatment.stash is None:
                again[treatment.way] = option.gradient_seconds
            if not any(_is_no_worse(other, option) for other in options):
                options.append(option)
        if not isinstance(block, ReversibleSequence) and not is_manual(block):
            options = [o if o.recomputed else replace(o, seconds_again=again[o.way]) for o in options]
        gradients = sum(each.numel() * each.element_size() for each in block.parameters() if each.requires_grad)
        size, copying = result.bytes, _copying(result, self.rates)
        kept = 0 if is_view else size
        found = Block(tuple(options), kept, seconds, forward, gradients, size, copying, saved)
        if self.stopwatch is not None:
            found = self.stopwatch.timed(found, block, form.shape, form.dtype)
        if self.host is not None and not is_view:
            travelling = [_in_host_memory(o, form.bytes, self.host) for o in found.options if _may_travel(o)]
            found = replace(found, options=(*found.options, *travelling))
        return found

    @property
    def pace(self) -> float:
        """Seconds in those that are counted."""
        return 1.0 if self.stopwatch is None else self.stopwatch.pace


def _treatments(block: nn.Module, *, stashes: bool) -> Iterator[Treatment]:
    yield Treatment("store")
    if isinstance(block, ReversibleSequence) and block.is_invertible():
        yield Treatment("store", recomputed=True)
        return
    stored = STORED if expands(block) else STORED[:2]
    yield from (Treatment(way) for way in stored[1:])
    yield from (Treatment(way, recomputed=True) for way in stored)
    if can_group(block):
        yield Treatment("groups", recomputed=True)
        yield Treatment("layers", recomputed=True)
    if can_chunk(block):
        yield Treatment("chunks", recomputed=True)
    if stashes:
        for way in stored:
            yield Treatment(way, recomputed=True, stash=EightBits())


def _copying(result: Form, rates: Rates) -> float:
    """Seconds to copy a gradient."""
    return 2 * result.bytes / rates.bytes


def _may_travel(option: Option) -> bool:
    """Whether all that is kept is the input."""
    return option.recomputed and option.stash is None and option.holds_input and not option.holds_result


def _in_host_memory(option: Option, size: int, host: HostMemory) -> Option:
    """The same, with an input of so many bytes in host memory; it leaves beside the evaluation."""
    travel = seconds_of(size)
    waiting = max(0.0, travel - (option.seconds - option.gradient_seconds))
    return replace(
        option,
        seconds=option.seconds + waiting,
        backward=option.backward + size,
        holds_input=False,
        stash=host,
        seconds_at_end=None,
        forward_at_end=None,
        travel=travel,
    )


def expands(block: nn.Module) -> bool:
    """Whether it may have 1x1 convolutions with more channels than they read; else "expand" is "norm"."""
    kernels = (each.shape for each in block.parameters() if each.dim() > 2)
    return any(shape[2:].numel() == 1 and shape[0] > shape[1] for shape in kernels)


def _is_deep(options: list[Option], size: int) -> bool:
    """Whether a block that is evaluated again takes much more than its input and result, which parts of a batch share.

    Others gain little, and to measure them takes long.
    """
    return min((option.backward for option in options if option.recomputed), default=0) > 1.5 * size


def _is_no_worse(one: Option, other: Option) -> bool:
    """Whether the second adds nothing to the first."""
    if (one.stash, one.recomputed) != (other.stash, other.recomputed):
        return False
    return all(
        getattr(one, name) <= getattr(other, name)
        for name in ("seconds", "kept", "forward", "backward", "holds_result")
    )


def identity(module: nn.Module) -> Iterator[Any]:
    """All that the costs of a module follow from, but for its input."""
    for name, each in module.named_modules():
        yield name, type(each), each.training
        for key, value in vars(each).items():
            if isinstance(value, (bool, int, float, str, tuple, torch.Size)) and key != "training":
                yield key, value
        for key, tensor in (*each.named_parameters(recurse=False), *each.named_buffers(recurse=False)):
            yield key, tuple(tensor.shape), tensor.dtype, tensor.requires_grad


class _Probe:
    """One evaluation of a block under the ledger, and its gradient."""

    def __init__(self, block: nn.Module, form: Form, costs: BlockCosts) -> None:
        self.block, self.form, self.costs = block, form, costs
        self.ledger = MemoryLedger()
        self.clock = Clock(costs.rates)
        for parameter in block.parameters():
            parameter.grad = None
        self.ledger.count([*block.parameters(), *block.buffers()])
        self.before = self._live()

    def _live(self) -> int:
        return sum(self.ledger.live().values())

    def _highest_since(self, begin: int) -> int:
        """Beyond what was there before."""
        totals = list(accumulate(change.difference for change in self.ledger.changes))
        return max(totals[max(begin - 1, 0) :], default=0) - self.before

    def evaluate(self) -> tuple[Form, bool, float, float, int]:
        """Form of the result, whether it is a view of the input, seconds, seconds that it takes less where norms are
        known, and highest bytes beyond the input where nothing is recorded.
        """
        with torch.no_grad(), self.ledger, self.costs.autocast():
            x = torch.empty(self.form.shape, dtype=self.form.dtype)
            begin = len(self.ledger.changes)
            with recorded_norms(x.device) as found, self.clock:
                result = self.block(x)
            is_view = result.untyped_storage() is x.untyped_storage()
            form, seconds, highest = Form.of(result), self.clock.seconds, self._highest_since(begin)
            del result
            if found.norms:
                with known_norms(found.norms), self.clock:
                    self.block(x)
            again = self.clock.seconds - seconds if found.norms else seconds
            return form, is_view, seconds, seconds - again, highest - self.form.bytes

    def option(self, treatment: Treatment, result: Form) -> Option:
        """Of the block under a treatment."""
        evaluation, gradient, found = self._step(treatment, result)
        copy = 0
        if treatment.recomputed:  # autograd holds a gradient while a copy of it is used, once for a step
            copy, gradient = result.bytes, gradient - _copying(result, self.costs.rates)
        is_skipped = treatment.recomputed and not found.holds_result
        return Option(
            treatment.way,
            evaluation + gradient,
            found.kept,
            found.forward,
            found.backward - copy,
            holds_input=found.holds_input,
            holds_result=found.holds_result,
            recomputed=treatment.recomputed,
            stash=treatment.stash,
            seconds_at_end=gradient if is_skipped else None,
            forward_at_end=0 if is_skipped else None,
            gradient_seconds=gradient,
        )

    def _step(self, treatment: Treatment, result: Form) -> tuple[float, float, _Step]:
        """Seconds of evaluation and gradient, and bytes."""
        part = _part(treatment)
        anchor = torch.empty(0, requires_grad=True)
        with self.ledger:
            x = _Given.apply(anchor, self.form)
            assert isinstance(x, Tensor)
            begin = len(self.ledger.changes)
            with self.clock, self.costs.autocast():
                y = run_parts([self.block], (part,), x, keeps_norms=True)
            forward = self._highest_since(begin) - self.form.bytes
            seconds = self.clock.seconds
            end = _Taken.apply(y, result)
            inputs, results = self.ledger.count([x]), self.ledger.count([y])
            del x, y
            left = self.ledger.live()
            is_there = inputs <= left.keys()
            is_view = inputs == results  # whoever holds the one holds the other, which counts as the input
            holds_input, holds_result = is_view or is_there, not is_view and results <= left.keys()
            kept = self._live() - self.before - is_there * self.form.bytes - holds_result * result.bytes
            begin = len(self.ledger.changes)
            assert isinstance(end, Tensor)
            with self.clock, two_for_all(self.clock):
                end.backward()
            backward = self._highest_since(begin) - is_there * self.form.bytes
        return seconds, self.clock.seconds - seconds, _Step(kept, forward, backward, holds_input, holds_result)


class _Step(NamedTuple):
    """Bytes; of backward beyond what was there before all, and the input where it is kept."""

    kept: int
    forward: int
    backward: int
    holds_input: bool
    holds_result: bool


def _part(treatment: Treatment) -> Part:
    option = Option(treatment.way, 0.0, 0, 0, 0, recomputed=treatment.recomputed, stash=treatment.stash)
    return option.part(0)


class _Given(torch.autograd.Function):
    """What comes into a block, from nowhere; its gradient ends here."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, form: Form) -> Tensor:
        return torch.empty(form.shape, dtype=form.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return None, None


class _Taken(torch.autograd.Function):
    """What a block makes, taken away; its gradient begins here."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, form: Form) -> Tensor:
        ctx.form = form
        return torch.empty(())

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return torch.empty(ctx.form.shape, dtype=ctx.form.dtype), None
