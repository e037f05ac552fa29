"""Gradient of a residual block a layer after the other: the body is a chain of its own, with a plan of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.plans import Leaf, Plan, Segment
from svtoolkit.reversible.tape import Run, record, unwind


def residual_backward(
    body: Sequence[nn.Module],
    plan: Plan,
    shortcut: nn.Module | None,
    x: Tensor,
    grad_output: Tensor,
    request: Request,
    ceiling: float = math.inf,
) -> Tensor:
    """Gradient of ``relu(body(x) + shortcut(x))`` for x.

    Args:
        body: layers one after the other.
        plan: of the body; the last layer must not read its own result in its gradient.
        shortcut: recomputed by itself; None: the identity.
        grad_output: may be overwritten.
        ceiling: where the ReLU ends.
    """
    aside: Plan = () if shortcut is None else (Segment((Leaf(len(body)),)),)
    run = Run([*body] if shortcut is None else [*body, shortcut], request.gradients, {})
    kept, out = record(run, plan, x, needs_input=True, whole=True)
    kept_aside, beside = record(run, aside, x, needs_input=True, whole=True)
    total = out.add_(beside) if torch.result_type(out, beside) == out.dtype else out + beside
    del out, beside
    dead = total <= 0
    if ceiling < math.inf:
        dead |= total >= ceiling
    upstream: Tensor | None = grad_output.to(total.dtype).masked_fill_(dead, 0)
    del total, grad_output, dead
    assert upstream is not None
    dx = unwind(run, kept, [upstream])
    if shortcut is not None:
        upstream = unwind(run, kept_aside, [upstream])
    assert dx is not None
    assert upstream is not None
    return (dx + upstream).to(x.dtype)
