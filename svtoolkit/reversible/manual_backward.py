"""Gradient of a module from its input alone: evaluated again, then differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from svtoolkit.reversible.batch_norms import Norm
from svtoolkit.reversible.recomputation import ParameterGradients, untracked_statistics

ValueHook = Callable[[Tensor], object]
"""Called with the value of a module as soon as it is known; it may modify it."""


class Request(NamedTuple):
    """What is asked for beside the gradient of one input; the fields are explained at ``recompute_backward``.

    Attributes:
        norms: what the module's norms found in its first evaluation, for ``backward_in_groups``.
        keeps_layers: whether that rather takes more memory than more time.
    """

    gradients: ParameterGradients
    value_hook: ValueHook | None = None
    needs_input: bool = True
    norms: Sequence[Norm] = ()
    keeps_layers: bool = False


@runtime_checkable
class ManualBackward(Protocol):
    """A module that computes its own gradient from its input, with less memory than autograd would take."""

    def is_as_built(self) -> bool:
        """Whether nothing was hooked or replaced; else autograd differentiates it."""
        ...

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor | None:
        """As the function ``recompute_backward``."""
        ...


@runtime_checkable
class GroupedBackward(Protocol):
    """A module that computes its own gradient from its input, one group of channels or utterances after the other."""

    def is_as_built(self) -> bool:
        """Whether nothing was hooked or replaced; else autograd differentiates it."""
        ...

    def backward_in_groups(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor | None:
        """As the function ``recompute_backward``, without ``value_hook``; equal up to rounding."""
        ...


def is_manual(module: nn.Module) -> bool:
    """Whether a module computes its gradient itself."""
    return isinstance(module, ManualBackward) and module.is_as_built()


def can_group(module: nn.Module) -> bool:
    """Whether a module's gradient can be computed in groups of channels."""
    return isinstance(module, GroupedBackward) and module.is_as_built()


def recompute_backward(
    module: nn.Module,
    x: Tensor,
    grad_output: Tensor,
    gradients: ParameterGradients,
    *,
    value_hook: ValueHook | None = None,
    needs_input: bool = True,
) -> Tensor | None:
    """Gradient of ``module`` at ``x``, whose first evaluation kept nothing.

    Running statistics of BatchNorm stay as they are. The caller restores autocast and random numbers.

    Args:
        x: input; not modified.
        grad_output: gradient of the module's value. A residual function (one with ``value_hook``) leaves it as it is;
            without ``value_hook`` it may be overwritten.
        gradients: to which those of the parameters are added.
        value_hook: is given the value before anything is differentiated.
        needs_input: whether the gradient for ``x`` is wanted.

    Returns:
        gradient for ``x``, of its type; None where it is not wanted.
    """
    if is_manual(module):
        assert isinstance(module, ManualBackward)
        with torch.no_grad():
            return module.recompute_backward(x, grad_output, Request(gradients, value_hook, needs_input))
    with torch.enable_grad(), untracked_statistics(module):
        leaf = x.detach().requires_grad_(needs_input)
        value = module(leaf)
    if value_hook is not None:
        value_hook(value.detach().clone())
    wanted = [parameter for parameter in module.parameters() if gradients.wants(parameter)]
    sources: list[Tensor] = [leaf, *wanted] if needs_input else [*wanted]
    if not value.requires_grad or not sources:
        return torch.zeros_like(x) if needs_input else None
    found = list(torch.autograd.grad(value, sources, grad_output.to(value.dtype), allow_unused=True))
    dx = found.pop(0) if needs_input else None
    for parameter, gradient in zip(wanted, found, strict=True):
        gradients.add(parameter, gradient)
    return torch.zeros_like(x) if needs_input and dx is None else dx
