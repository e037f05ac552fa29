"""Modules one after the other as one step of autograd, which keeps the cuts between them and recomputes all else."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.reversible.coupling import Record, ReversibleSequence, refuse_in_place
from svtoolkit.reversible.manual_backward import recompute_backward
from svtoolkit.reversible.recomputation import AutocastState, ModuleState, ParameterGradients, RandomState
from svtoolkit.reversible.stash import Stash


def recompute_each(modules: list[nn.Module], x: Tensor, stash: Stash | None = None) -> Tensor:
    """``modules`` on ``x``, which or whose weights need a gradient; each is recomputed by itself.

    What comes into an ordinary module is kept, by the stash where there is one, and the result of a reversible sequence
    as it is.
    """
    state = ModuleState(modules)
    parameters = [parameter for parameter in state.parameters if parameter.requires_grad]
    return _Recomputed.apply(modules, stash, state, x, *parameters)


class _Recomputed(torch.autograd.Function):
    """Forward keeps the cuts on the context itself: backward gives each back as soon as it has been used."""

    @staticmethod
    def forward(
        ctx: Any,
        modules: list[nn.Module],
        stash: Stash | None,
        state: ModuleState,
        x: Tensor,
        *parameters: nn.Parameter,
    ) -> Tensor:
        ctx.modules, ctx.stash, ctx.state, ctx.parameters = modules, stash, state, parameters
        ctx.autocast = AutocastState.capture(x.device)
        cuts: list[Any] = []
        records: list[Record | RandomState | None] = []
        value: Tensor = x
        with ctx.autocast.restored():
            for module in modules:
                # What comes in is kept for an ordinary module, and as the result of a reversible one before it.
                before = value
                value, record = _evaluate(module, before)
                is_result = bool(records) and isinstance(records[-1], Record)
                if is_result or isinstance(record, Record):
                    cuts.append(before.detach() if is_result else None)
                else:
                    cuts.append(before.detach() if stash is None else stash.pack(before.detach()))
                records.append(record)
                del before
        cuts.append(value.detach() if isinstance(records[-1], Record) else None)
        # The caller holds the input and output too: save the (small) input through autograd, and drop ours of the
        # output as soon as possible.
        is_input = isinstance(cuts[0], Tensor)
        ctx.save_for_backward(x if is_input else None)
        if is_input:
            cuts[0] = None
        ctx.cuts, ctx.records, ctx.versions = cuts, records, _versions(cuts)
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            gradients = _Recomputed._gradients(ctx, upstream[0])
        return gradients if not torch.is_grad_enabled() else differentiable_once(gradients)

    @staticmethod
    def _gradients(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.cuts is None:
            raise RuntimeError(
                "a recomputed chain was to be differentiated a second time after its cuts were freed; "
                "ask for retain_graph=True the first time"
            )
        cuts = list(ctx.cuts)
        is_kept = _graph_is_kept()
        if not is_kept:
            ctx.cuts = None
        if _versions(cuts) != ctx.versions:
            raise RuntimeError(
                "the result of a recomputed chain was modified in place before its gradient was computed; "
                "modify a clone of it"
            )
        ctx.state.check()
        (x,) = ctx.saved_tensors
        if x is not None:
            cuts[0] = x
        del x
        gradients = ParameterGradients(ctx.parameters)
        needs_input = ctx.needs_input_grad[3]
        first = 0 if needs_input else _first_that_learns(ctx.modules, gradients)
        grad_output: Tensor | None = upstream.clone()  # the engine's own must not be overwritten
        with ctx.autocast.restored():
            for position in reversed(range(first, len(ctx.modules))):
                module, record = ctx.modules[position], ctx.records[position]
                assert grad_output is not None
                if isinstance(record, Record):
                    held = [cuts[position + 1], grad_output]
                    cuts[position + 1] = grad_output = None
                    grad_output = module.pull_back(held, record, gradients, owned=not is_kept)
                    continue
                cuts[position + 1] = None
                if ctx.stash is not None and not isinstance(cuts[position], Tensor):
                    cuts[position] = ctx.stash.unpack(cuts[position])
                with nullcontext() if record is None else record.restored():
                    grad_output = recompute_backward(
                        module, cuts[position], grad_output, gradients, needs_input=needs_input or position > first
                    )
        return None, None, None, grad_output if needs_input else None, *gradients.in_order()


def _evaluate(module: nn.Module, x: Tensor) -> tuple[Tensor, Record | RandomState | None]:
    if isinstance(module, ReversibleSequence) and module.is_invertible():
        return module.run(x)
    state, version = RandomState(x.device), x._version
    value = module(x)
    refuse_in_place(module, x, version)
    return value, state if state.is_consumed() else None


def _versions(cuts: Iterable[Any]) -> list[int | None]:
    return [cut._version if isinstance(cut, Tensor) else None for cut in cuts]


def _first_that_learns(modules: Iterable[nn.Module], gradients: ParameterGradients) -> int:
    """Position of the first module with a parameter that needs a gradient: there backward may end."""
    learns = [any(gradients.wants(parameter) for parameter in module.parameters()) for module in modules]
    return learns.index(True)


def differentiable_once(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """The same gradients, which depend on something: second derivatives then reach the refusal instead of nothing."""
    refusing = iter(_Refusal.apply(torch.empty(0, requires_grad=True), *(g for g in gradients if g is not None)))
    return tuple(None if gradient is None else next(refusing) for gradient in gradients)


class _Refusal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, *gradients: Tensor) -> tuple[Tensor, ...]:
        return gradients

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(
            "the gradient of a recomputed chain cannot be differentiated again; "
            "second derivatives need stored activations"
        )


def _graph_is_kept() -> bool:
    """Whether this backward pass was asked to keep the graph; torch frees by default, and so do we."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())
