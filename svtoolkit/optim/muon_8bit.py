"""Muon whose state takes one byte a value instead of four."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.optim.chunks import Gathered, plan_chunks
from svtoolkit.optim.eight_bit import AdamW8bit
from svtoolkit.optim.eight_bit_optimizer import EightBitOptimizer
from svtoolkit.optim.moments import Moment, load_moment
from svtoolkit.optim.muon import MuonGroups, move_matrix, muon_groups


class Muon8bit(MuonGroups, AdamW8bit):
    """``Muon`` with the state of ``EightBitOptimizer``: moment ``momentum`` of matrices, those of ``AdamW8bit`` of the
    others, and ``step`` of both.

    The direction is that of the momentum before it is coded; in float32 is one matrix at a time. Gupta et al. 2025
    (arXiv 2509.23106) have Muon with 8-bit momentum.

    Args:
        settings: arguments of ``Muon``.
        block_size, min_8bit_size: as for ``SGD8bit``.

    Raises:
        ValueError: a setting makes no sense.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], *, block_size: int = 2048, min_8bit_size: int = 4096, **settings: Any
    ) -> None:
        self._order = list(params)
        groups, shared = muon_groups(self._order, **settings)
        EightBitOptimizer.__init__(self, groups, {**shared, "block_size": block_size, "min_8bit_size": min_8bit_size})

    def check(self, settings: Mapping[str, Any]) -> None:
        if settings["is_matrices"]:
            EightBitOptimizer.check(self, settings)
        else:
            super().check(settings)

    def moments(self, group: Mapping[str, Any]) -> tuple[Moment, ...]:
        return (Moment("momentum", signed=True),) if group["is_matrices"] else super().moments(group)

    def step_of_group(self, group: Mapping[str, Any]) -> None:
        if not group["is_matrices"]:
            super().step_of_group({**group, "lr": group["lr"] * group["lr_ratio"]})
            return
        for matrices, block_size, _ in self.batches(group):
            for matrix in matrices:
                move_matrix(matrix, self._direction(matrix, group, block_size), group)

    def _direction(self, matrix: Tensor, group: Mapping[str, Any], block_size: int | None) -> Tensor:
        """Of the shape of the matrix; its momentum is updated."""
        assert matrix.grad is not None, "it is among those with a gradient"
        (moment,) = self.moments(group)
        found = torch.empty(matrix.numel(), device=matrix.device)
        for chunk in plan_chunks((matrix.numel(),), block_size or 1):
            ((_, begin, end),) = chunk.values.pieces
            gradient = Gathered(chunk.values, [matrix.grad], torch.float32).flat
            momentum = load_moment(moment, chunk, [self.state[matrix]], block_size)
            momentum.values.lerp_(gradient, 1 - group["momentum"])
            ahead = gradient.lerp(momentum.values, group["momentum"]) if group["nesterov"] else momentum.values
            found[begin:end] = ahead[: end - begin]
            momentum.store()
        return found.view(matrix.shape)
