"""Modules one after the other by a plan: stored, recomputed one by one, or in segments that nest."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.reversible.coupling import refuse_in_place
from svtoolkit.reversible.cuts import differentiable_once, recompute_each
from svtoolkit.reversible.plans import Plan
from svtoolkit.reversible.recomputation import AutocastState, ModuleState, RandomState, untracked_statistics
from svtoolkit.reversible.stash import Stash


def run_plan(modules: list[nn.Module], plan: Plan, x: Tensor, stash: Stash | None = None) -> Tensor:
    """``modules`` on ``x`` with gradients, by ``plan``, which holds positions in ``modules``.

    Args:
        stash: how inputs of modules that are recomputed one by one are kept; None: as they are.
    """
    single: list[nn.Module] = []
    for part in plan:
        if isinstance(part, tuple) and len(part) == 1 and isinstance(part[0], int):
            single.append(modules[part[0]])
            continue
        x = _single(single, x, stash)
        single = []
        x = modules[part](x) if isinstance(part, int) else _segment(modules, part, x)
    return _single(single, x, stash)


def _single(modules: list[nn.Module], x: Tensor, stash: Stash | None) -> Tensor:
    """Neighbours that are recomputed one by one are one step of autograd."""
    if not needs_gradient(modules, x):
        for module in modules:
            x = module(x)
        return x
    return recompute_each(modules, x, stash)


def _segment(modules: list[nn.Module], plan: Plan, x: Tensor) -> Tensor:
    own = [modules[position] for position in _positions(plan)]
    if not needs_gradient(own, x):
        for module in own:
            x = module(x)
        return x
    state = ModuleState(own)
    parameters = [parameter for parameter in state.parameters if parameter.requires_grad]
    return _Segment.apply(modules, plan, state, x, *parameters)


def needs_gradient(modules: list[nn.Module], x: Tensor) -> bool:
    """Whether autograd would record anything."""
    return (
        torch.is_grad_enabled()
        and bool(modules)
        and (x.requires_grad or any(weight.requires_grad for module in modules for weight in module.parameters()))
    )


def _positions(plan: Plan) -> list[int]:
    return [position for part in plan for position in (_positions(part) if isinstance(part, tuple) else (part,))]


class _Segment(torch.autograd.Function):
    """Keeps its input; backward evaluates the segment once more by its plan, and differentiates that."""

    @staticmethod
    def forward(
        ctx: Any, modules: list[nn.Module], plan: Plan, state: ModuleState, x: Tensor, *parameters: nn.Parameter
    ) -> Tensor:
        ctx.modules, ctx.plan, ctx.state, ctx.parameters = modules, plan, state, parameters
        ctx.autocast = AutocastState.capture(x.device)
        ctx.save_for_backward(x)
        random, version = RandomState(x.device), x._version
        value = x
        with ctx.autocast.restored():
            for position in _positions(plan):
                value = modules[position](value)
                refuse_in_place(modules[position], x, version)
        ctx.random = random if random.is_consumed() else None
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        ctx.state.check()
        (x,) = ctx.saved_tensors
        needs_input = ctx.needs_input_grad[3]
        with (
            torch.enable_grad(),
            untracked_statistics(ctx.state.modules),
            ctx.autocast.restored(),
            nullcontext() if ctx.random is None else ctx.random.restored(),
        ):
            leaf = x.detach().requires_grad_(needs_input)
            value = run_plan(ctx.modules, ctx.plan, leaf)
            edge = torch.autograd.graph.get_gradient_edge(value)  # the value itself is no longer needed
        sources = [leaf, *ctx.parameters] if needs_input else [*ctx.parameters]
        grad_output = upstream[0].to(value.dtype)
        del leaf, x, value
        found = list(torch.autograd.grad([edge], sources, [grad_output], allow_unused=True))
        dx = found.pop(0) if needs_input else None
        gradients = (None, None, None, dx, *found)
        return gradients if not torch.is_grad_enabled() else differentiable_once(gradients)
