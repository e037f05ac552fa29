"""Gradient of a residual block from its input, with no more of it at once than what its norms read.

Between two BatchNorms an utterance depends on no other. So the block is cut before its norms: what each of them reads
is there for the whole batch, all else for a part of it (``svtoolkit.reversible.chunks``). The gradient of what a norm
makes takes the place of what the next one read, and that of the block's input the place of that of its result. Of the
layers between two cuts the last is evaluated once, the others twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from svtoolkit.reversible.batch_norms import Norm
from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.norm_stretch import CLIPS, Stretch, cut, is_of_batch
from svtoolkit.reversible.parts import parts_of
from svtoolkit.reversible.plans import Plan
from svtoolkit.reversible.recomputation import ParameterGradients
from svtoolkit.reversible.tape import Run, record, unwind


class Head(NamedTuple):
    """Narrow layers of any kind, and what of them is kept: little, or what their convolutions make."""

    layers: Sequence[nn.Module]
    plan: Plan
    plan_of_layers: Plan


def residual_backward(
    body: Sequence[nn.Module],
    shortcut: Iterable[nn.Module],
    x: Tensor,
    grad_output: Tensor,
    request: Request,
    ceiling: float = math.inf,
    head: Head | None = None,
) -> Tensor | None:
    """Gradient of ``relu(body(head(x)) + shortcut(x))`` for x, of its type; None where it is not wanted.

    Args:
        body: layers one after the other, of which norms alone let an utterance depend on others.
        shortcut: a convolution and its norm; none: the identity.
        x: (batch, channels, ...).
        grad_output: is overwritten.
        request: with the norms of the block in the order in which it calls them: head, body, shortcut.
        ceiling: where the ReLU ends.
        head: what comes before the body.
    """
    count = len(request.norms) - sum(map(is_of_batch, [*body, *shortcut]))
    before, norms = iter(request.norms[:count]), iter(request.norms[count:])
    stretches, aside = cut(body, norms, keeps_layers=request.keeps_layers), cut(shortcut, norms)
    head = head or Head([], (), ())
    plan = head.plan_of_layers if request.keeps_layers else head.plan
    counts = [sum(map(is_of_batch, layer.modules())) for layer in head.layers]
    known: dict[int, list[Norm] | None] = {place: [*islice(before, n)] for place, n in enumerate(counts)}
    run = Run([*head.layers], request.gradients, known)
    kept, begin = record(run, plan, x, needs_input=request.needs_input, whole=True)
    read = [begin]
    for stretch in stretches[:-1]:
        read.append(_evaluated(stretch, read[-1]))
    dy, upstream = _of_the_sum(stretches[-1], aside, x, read[-1], grad_output, request.gradients, ceiling)
    del grad_output
    result = _Room(dy, len(x))

    def finish(rows: slice, gradient: Any) -> None:
        """With the gradient of some utterances from the head or body."""
        if aside:
            beside = _of_shortcut(aside, x[rows], dy[rows], request)
            gradient = beside.add_(gradient) if request.needs_input else None
        elif request.needs_input:
            gradient = dy[rows].add_(gradient)
        if request.needs_input:
            result.fill(rows, gradient)

    while len(stretches) > 1:
        is_last = len(stretches) == 2 and not kept
        wanted = request.needs_input or not is_last
        after, stretch, below, value = stretches.pop(), stretches[-1], read.pop(), read[-1]
        room = _Room(below if stretch.norm is not None else value, len(x))
        for rows in parts_of(len(x)):
            seen, made = below[rows], upstream[rows]
            told = seen if stretch.is_told else None
            place = made if upstream is not dy else seen if told is None else None  # what is not read again
            pending = [after.input_gradient(seen, made, place)]
            gradient = stretch.backward(value[rows], pending, told, request.gradients, needs_input=wanted)
            if is_last:
                finish(rows, gradient)
            else:
                stretch.add_sums(value[rows], gradient)
                room.fill(rows, gradient)
            del gradient, seen, made, told, place
        after.add_gradients(request.gradients)
        if not is_last:
            upstream = room.tensor
        del room, below, value
    if kept:
        read.clear()
        pending = [upstream]
        del upstream, begin
        dx = unwind(run, kept, pending)
        for rows in parts_of(len(x)):
            finish(rows, dx[rows] if dx is not None else None)
    if len(aside) > 1:
        aside[1].add_gradients(request.gradients)
    return result.tensor.to(x.dtype) if request.needs_input else None


class _Room:
    """A tensor that is filled a part of the batch at a time, in the place of another one where it fits."""

    def __init__(self, place: Tensor | None, batch: int) -> None:
        self.place, self.batch = place, batch
        self._tensor: Tensor | None = None

    @property
    def tensor(self) -> Tensor:
        assert self._tensor is not None
        return self._tensor

    def fill(self, rows: slice, part: Tensor) -> None:
        tensor = self._opened(part)
        if part.untyped_storage() is not tensor.untyped_storage():
            tensor[rows] = part

    def fill_clipped(self, rows: slice, part: Tensor, clip: nn.ReLU | nn.Hardtanh) -> None:
        """With what an activation makes of a part."""
        bounds = (0, None) if isinstance(clip, nn.ReLU) else (clip.min_val, clip.max_val)
        torch.clamp(part, *bounds, out=self._opened(part)[rows])

    def _opened(self, part: Tensor) -> Tensor:
        if self._tensor is None:
            self._tensor, self.place = self._found(part), None
        return self._tensor

    def _found(self, part: Tensor) -> Tensor:
        place = self.place
        if place is not None and (place.shape[1:], place.dtype) == (part.shape[1:], part.dtype):
            return place
        is_last = part.dim() == 4 and part.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if is_last and not part.is_contiguous() else torch.contiguous_format
        return torch.empty((self.batch, *part.shape[1:]), dtype=part.dtype, device=part.device, memory_format=layout)


def _evaluated(stretch: Stretch, x: Tensor) -> Tensor:
    """Of the whole batch."""
    if stretch.norm is None and len(stretch.layers) == 1:
        return stretch.value(x)
    room, clip = _Room(None, len(x)), stretch.layers[-1] if stretch.layers else None
    for rows in parts_of(len(x)):
        if isinstance(clip, CLIPS):
            room.fill_clipped(rows, stretch.value(x[rows], -1), clip)
        else:
            room.fill(rows, stretch.value(x[rows]))
    return room.tensor


def _of_the_sum(
    last: Stretch,
    aside: list[Stretch],
    begin: Tensor,
    read: Tensor,
    grad_output: Tensor,
    gradients: ParameterGradients,
    ceiling: float,
) -> tuple[Tensor, Tensor]:
    """Gradients of body(x) + shortcut(x) and of what the last norm makes, which may be the same tensor."""
    dy, room = grad_output, _Room(None, len(grad_output))
    for rows in parts_of(len(dy)):
        x, before = read[rows], [begin[rows]]
        for stretch in aside:
            before.append(stretch.value(before[-1]))
        total = last.value(x) + before[-1]
        dy = dy.to(total.dtype)
        upstream = dy[rows]
        if ceiling < math.inf:
            torch.ops.aten.hardtanh_backward.grad_input(upstream, total, 0, ceiling, grad_input=upstream)
        else:
            torch.ops.aten.threshold_backward.grad_input(upstream, total, 0, grad_input=upstream)
        del total
        if aside:
            aside[-1].add_sums(before[-2], upstream)
        if last.layers:
            upstream = last.backward(x, [upstream.clone()], None, gradients, needs_input=True)
            room.fill(rows, upstream)
        last.add_sums(x, upstream)
    return dy, room.tensor if last.layers else dy


def _of_shortcut(aside: list[Stretch], x: Tensor, dy: Tensor, request: Request) -> Any:
    """Gradient of some utterances of x."""
    first, last = aside
    read = first.value(x)
    pending = [last.input_gradient(read, dy, read)]
    return first.backward(x, pending, None, request.gradients, needs_input=request.needs_input)
