"""Modules one after the other by a plan: stored as autograd does, or recomputed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from svtoolkit.reversible.cuts import recompute
from svtoolkit.reversible.plans import Leaf, Part, positions, runs_of
from svtoolkit.reversible.tape import run_leaves


def run_parts(modules: list[nn.Module], parts: tuple[Part, ...], x: Tensor, *, keeps_norms: bool = False) -> Tensor:
    """Parts of a plan on ``x`` with gradients; neighbours that are recomputed are one step of autograd.

    Args:
        keeps_norms: as of a ``Run``.
    """
    for is_stored, group in runs_of(parts):
        own = [modules[position] for position in positions(*group)]
        if is_stored:
            x = run_leaves(modules, tuple(leaf for leaf in group if isinstance(leaf, Leaf)), x)
        elif needs_gradient(own, x):
            x = recompute(modules, group, x, keeps_norms=keeps_norms)
        else:
            for module in own:
                x = module(x)
    return x


def needs_gradient(modules: list[nn.Module], x: Tensor) -> bool:
    """Whether autograd would record anything."""
    return (
        torch.is_grad_enabled()
        and bool(modules)
        and (x.requires_grad or any(weight.requires_grad for module in modules for weight in module.parameters()))
    )
