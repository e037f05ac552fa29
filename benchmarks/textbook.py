"""Reversible networks as an implementation by the book trains them: what our own memory is compared with.

What Gomez et al. 2017 (algorithm 1) write down in a few lines of PyTorch, and MemCNN and RevTorch do: each run of
couplings keeps its result alone; backward recovers the input of one coupling, evaluates the whole coupling once more
under autograd, and differentiates it. Stem, transitions and ordinary blocks are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.reversible import AdditiveCoupling, ReversibleSequence


def invert_by_the_book(network: nn.Module) -> None:
    """Recompute every run of couplings of a network whose activations are else stored; for good."""
    for module in network.modules():
        if isinstance(module, ReversibleSequence):
            module.forward = partial(_run, module.couplings())  # type: ignore[method-assign]


def _run(couplings: Sequence[AdditiveCoupling], x: Tensor) -> Tensor:
    return _Couplings.apply(couplings, x, *(weight for coupling in couplings for weight in coupling.parameters()))


class _Couplings(torch.autograd.Function):
    """Running statistics of BatchNorm move with every evaluation: good enough to measure memory."""

    @staticmethod
    def forward(ctx: Any, couplings: Sequence[AdditiveCoupling], x: Tensor, *weights: nn.Parameter) -> Tensor:
        ctx.couplings = couplings
        streams = x.chunk(2, dim=1)
        for coupling in couplings:
            streams = coupling(*streams)
        y = torch.cat(streams, dim=1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        y, d = ctx.saved_tensors[0].chunk(2, dim=1), upstream[0].chunk(2, dim=1)
        found: list[Tensor] = []
        for coupling in reversed(ctx.couplings):
            with torch.no_grad():
                x = coupling.inverse(*y)
            weights = list(coupling.parameters())
            with torch.enable_grad():
                x = tuple(stream.requires_grad_() for stream in x)
                values = coupling(*x)
            gradients = torch.autograd.grad(values, [*x, *weights], d)
            del values
            y, d = tuple(stream.detach() for stream in x), gradients[:2]
            found[:0] = gradients[2:]
        return None, torch.cat(d, dim=1), *found
