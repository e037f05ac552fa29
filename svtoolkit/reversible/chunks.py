"""Gradient of a module from its input, a few utterances of the batch at a time.

Only BatchNorm lets an utterance depend on others. Its mean and variance are known from the first evaluation; the sums
of its gradient are found from the last norm to the first, one evaluation of all chunks for each that another one reads,
and the last evaluation, in which all is known, gives the gradients of input and parameters. With L norms one after the
other the module is evaluated L + 1 times.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from svtoolkit.reversible.batch_norms import Norm, PartOfBatch, Sums, levels_of, sums_of
from svtoolkit.reversible.coupling import ReversibleSequence
from svtoolkit.reversible.manual_layers import has_hooks
from svtoolkit.reversible.parts import parts_of
from svtoolkit.reversible.recomputation import ParameterGradients, untracked_statistics

KNOWN_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def can_chunk(module: nn.Module) -> bool:
    """Whether an utterance's value depends on others by BatchNorm alone, as far as a module's layers tell.

    Of modules that are none of torch's it is taken for granted that the first dimension of input and value is the
    batch, and that they do nothing else across it.
    """
    return not any(has_hooks(each) or _mixes(each) for each in module.modules())


def _mixes(layer: nn.Module) -> bool:
    if isinstance(layer, _NormBase) and not isinstance(layer, _InstanceNorm):
        return type(layer) not in KNOWN_NORMS
    if isinstance(layer, _DropoutNd):
        return layer.training and layer.p > 0
    if isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)):
        return not layer.batch_first
    return isinstance(layer, ReversibleSequence)


def backward_in_chunks(
    module: nn.Module,
    x: Tensor,
    upstream: list[Tensor],
    gradients: ParameterGradients,
    norms: list[Norm],
    *,
    needs_input: bool,
) -> tuple[bool, Tensor | None]:
    """Gradient of ``module`` at ``x``, up to rounding; running statistics stay as they are.

    Args:
        x: input, (batch, ...); not modified.
        upstream: gradient of the module's value, (batch, ...), which is taken out and overwritten.
        gradients: to which those of the parameters are added.
        norms: of the module's evaluation on ``x``.
        needs_input: whether the gradient for ``x`` is wanted.

    Returns:
        whether it could be done, and the gradient for ``x``, of its type; where it could not, nothing was done.
    """
    with untracked_statistics(module):
        levels = _levels(module, x, norms, needs_input=needs_input)
        if levels is None:
            return False, None
        dy = upstream.pop()
        sums: list[Sums | None] = [None] * len(norms)
        for level in range(max(levels.values(), default=-1) + 1):
            _collect(module, x, dy, norms, sums, frozenset(n for n, of_norm in levels.items() if of_norm == level))
        return True, _differentiate(module, x, dy, norms, sums, gradients, needs_input=needs_input)


def _levels(module: nn.Module, x: Tensor, norms: list[Norm], *, needs_input: bool) -> dict[int, int] | None:
    """Of each norm whose gradient is wanted, by one utterance; None: it is not understood what happens."""
    part = PartOfBatch(norms, [None] * len(norms), adds_sums=False)
    with torch.enable_grad(), part:
        value = module(x[:1].detach().requires_grad_(needs_input))
    if not part.is_understood or part.calls != len(norms) or not isinstance(value, Tensor) or value.shape[0] != 1:
        return None
    return levels_of(part.nodes)


def _collect(
    module: nn.Module, x: Tensor, dy: Tensor, norms: list[Norm], sums: list[Sums | None], wanted: frozenset[int]
) -> None:
    """Find the sums of some norms; those of all that read them are known."""
    for chunk in parts_of(len(x)):
        part = PartOfBatch(norms, sums, wanted, adds_sums=False)
        with torch.enable_grad(), part:
            value = module(x[chunk].detach())
        begins = [(number, *part.begins[number]) for number in sorted(wanted)]
        part.begins.clear()
        found = torch.autograd.grad(value, [edge for *_, edge in begins], dy[chunk].to(value.dtype), allow_unused=True)
        del value
        for (number, before, _), gradient in zip(begins, found, strict=True):
            here = sums_of(before, torch.zeros_like(before) if gradient is None else gradient, norms[number])
            so_far = sums[number] if chunk.start else None
            sums[number] = here if so_far is None else Sums(*map(torch.add, so_far, here))


def _differentiate(
    module: nn.Module,
    x: Tensor,
    dy: Tensor,
    norms: list[Norm],
    sums: list[Sums | None],
    gradients: ParameterGradients,
    *,
    needs_input: bool,
) -> Tensor | None:
    """The last evaluation; the gradient for x takes the place of that of the value where it fits."""
    wanted = [parameter for parameter in module.parameters() if gradients.wants(parameter)]
    fits = (x.shape, x.dtype) == (dy.shape, dy.dtype) and x.stride() == dy.stride()
    dx = (dy if fits else torch.empty_like(x)) if needs_input else None
    for chunk in parts_of(len(x)):
        leaf = x[chunk].detach().requires_grad_(needs_input)
        with torch.enable_grad(), PartOfBatch(norms, sums, adds_sums=chunk.start == 0):
            value = module(leaf)
        sources: list[Any] = [leaf, *wanted] if needs_input else [*wanted]
        if not value.requires_grad or not sources:
            return None if dx is None else dx.zero_()
        found = list(torch.autograd.grad(value, sources, dy[chunk].to(value.dtype), allow_unused=True))
        del value, leaf
        if dx is not None:
            first = found.pop(0)
            dx[chunk] = 0 if first is None else first
            del first
        for parameter in wanted:
            gradients.add(parameter, found.pop(0))
    return dx
