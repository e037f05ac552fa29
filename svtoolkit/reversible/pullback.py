"""Gradient of a module from its input alone: evaluated again, then differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from svtoolkit.reversible.recomputation import ParameterGradients, untracked_statistics

Consume = Callable[[Tensor], object]
"""Takes the value of a module as soon as it is known; the value is its own to modify."""


@runtime_checkable
class ExplicitGradient(Protocol):
    """A module that computes its own gradient, with less memory than autograd would take."""

    def is_explicit(self) -> bool:
        """Whether it can as it stands: hooks and replaced layers are for autograd."""
        ...

    def pull_back(
        self, x: Tensor, cotangent: Tensor, gradients: ParameterGradients, consume: Consume | None, needs_input: bool
    ) -> Tensor | None:
        """As the function ``pull_back``."""
        ...


def pull_back(
    module: nn.Module,
    x: Tensor,
    cotangent: Tensor,
    gradients: ParameterGradients,
    *,
    consume: Consume | None = None,
    needs_input: bool = True,
) -> Tensor | None:
    """Gradient of ``module`` at ``x``, whose first evaluation kept nothing.

    Running statistics of BatchNorm stay as they are. Autocast and random numbers are for the caller to restore.

    Args:
        x: input; not modified.
        cotangent: gradient of the module's value. A residual function (one with ``consume``) leaves it as it is;
            without ``consume`` it may be overwritten.
        gradients: to which those of the parameters are added.
        consume: is given the value before anything is differentiated.
        needs_input: whether the gradient for ``x`` is wanted.

    Returns:
        gradient for ``x``, of its type; None where it is not wanted.
    """
    if isinstance(module, ExplicitGradient) and module.is_explicit():
        with torch.no_grad():
            return module.pull_back(x, cotangent, gradients, consume, needs_input)
    with torch.enable_grad(), untracked_statistics(module):
        leaf = x.detach().requires_grad_(needs_input)
        value = module(leaf)
    if consume is not None:
        consume(value.detach().clone())
    wanted = [parameter for parameter in module.parameters() if gradients.wants(parameter)]
    sources: list[Tensor] = [leaf, *wanted] if needs_input else [*wanted]
    if not value.requires_grad or not sources:
        return torch.zeros_like(x) if needs_input else None
    found = list(torch.autograd.grad(value, sources, cotangent.to(value.dtype), allow_unused=True))
    dx = found.pop(0) if needs_input else None
    for parameter, gradient in zip(wanted, found, strict=True):
        gradients.add(parameter, gradient)
    return torch.zeros_like(x) if needs_input and dx is None else dx
