"""Parts of a plan as one step of autograd, which keeps the cuts between them and recomputes all else."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.reversible.plans import Part, positions
from svtoolkit.reversible.recomputation import (
    AutocastState,
    ModuleState,
    ParameterGradients,
    graph_is_kept,
    untracked_statistics,
)
from svtoolkit.reversible.tape import Input, Kept, Run, record, unwind


def recompute(modules: list[nn.Module], parts: tuple[Part, ...], x: Tensor, *, keeps_norms: bool = False) -> Tensor:
    """``parts``, which are recomputed, on ``x``; it or their weights need a gradient.

    Args:
        keeps_norms: as of a ``Run``.
    """
    state = ModuleState(modules[position] for position in positions(*parts))
    parameters = [parameter for parameter in state.parameters if parameter.requires_grad]
    return _Recomputed.apply(modules, parts, state, keeps_norms, x, *parameters)


class _Recomputed(torch.autograd.Function):
    """Forward keeps the cuts on the context itself: backward gives each back as soon as it has been used."""

    @staticmethod
    def forward(
        ctx: Any,
        modules: list[nn.Module],
        parts: tuple[Part, ...],
        state: ModuleState,
        keeps_norms: bool,
        x: Tensor,
        *parameters: nn.Parameter,
    ) -> Tensor:
        ctx.modules, ctx.state, ctx.parameters = modules, state, parameters
        ctx.autocast = AutocastState.capture(x.device)
        run = Run(modules, ParameterGradients(parameters), {}, keeps_norms=keeps_norms)
        ctx.norms = run.norms
        with ctx.autocast.restored():
            kept, value = record(run, parts, x, needs_input=ctx.needs_input_grad[4], whole=True)
        # The caller holds the input too: save it through autograd.
        first = kept[0]
        ctx.keeps_input = isinstance(first, Input) and first.part is parts[0] and isinstance(first.tensor, Tensor)
        ctx.save_for_backward(x if ctx.keeps_input else None)
        if ctx.keeps_input:
            first.tensor = None
        ctx.kept, ctx.versions = kept, _versions(kept)
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            gradients = _Recomputed._gradients(ctx, upstream[0])
        return gradients if not torch.is_grad_enabled() else differentiable_once(gradients)

    @staticmethod
    def _gradients(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.kept is None:
            raise RuntimeError(
                "a recomputed chain was to be differentiated a second time after its cuts were freed; "
                "ask for retain_graph=True the first time"
            )
        kept = ctx.kept
        owned = not graph_is_kept()
        if not owned:
            kept = [copy.copy(each) for each in kept]
        else:
            ctx.kept = None
        if _versions(kept) != ctx.versions:
            raise RuntimeError(
                "the result of a recomputed chain was modified in place before its gradient was computed; "
                "modify a clone of it"
            )
        ctx.state.check()
        if ctx.keeps_input:
            kept[0].tensor = lambda: ctx.saved_tensors[0]  # which may have to be made
        gradients = ParameterGradients(ctx.parameters)
        with untracked_statistics(ctx.state.modules), ctx.autocast.restored():
            # the engine's own gradient must not be overwritten
            dx = unwind(Run(ctx.modules, gradients, ctx.norms, owned), kept, [upstream.clone()])
        return None, None, None, None, dx if ctx.needs_input_grad[4] else None, *gradients.in_order()


def _versions(kept: Iterable[Kept]) -> list[int | None]:
    return [each.tensor._version if isinstance(each.tensor, Tensor) else None for each in kept]


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
