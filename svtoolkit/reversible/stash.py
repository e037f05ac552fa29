"""How a recomputed chain keeps what comes into its modules: as it is, or in 8 bits a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

LEVELS = 255
"""Steps between the lowest and the highest value that share a scale."""
FEWEST = 32
"""Values that share a scale: with fewer, scales would weigh as much as what they are for."""


class Stash:
    """What is kept of a tensor between forward and backward pass."""

    def pack(self, x: Tensor) -> Any:
        """What is kept; a tensor: itself. What reads it has not been evaluated yet."""
        raise NotImplementedError

    def settle(self, kept: Any) -> None:
        """What reads it has been evaluated."""

    def fetch(self, kept: Any) -> None:
        """It is unpacked after the next gradient."""

    def unpack(self, kept: Any) -> Tensor:
        """A tensor of the shape, type and layout of the one that was packed."""
        raise NotImplementedError


class Codes(NamedTuple):
    """A tensor in 8 bits a value: ``lowest + codes * step``."""

    codes: Tensor
    lowest: Tensor
    step: Tensor
    dtype: torch.dtype


@dataclass(frozen=True)
class EightBits(Stash):
    """The nearest of 256 values, which lie evenly between the lowest and the highest.

    The error of a value is at most half a step. The zeros of a ReLU come back as zeros; what is not finite comes back
    as NaN, with all that shares its scale, so that whoever looks for an overflow finds it.

    Attributes:
        by_utterance: a scale for each channel of each utterance; else for each channel of the batch.
    """

    by_utterance: bool = True

    def pack(self, x: Tensor) -> Codes:
        """(batch, channels, ...) of any floating type, in codes."""
        dims = self._shared(x)
        wide = x if x.dtype == torch.float64 else x.float()
        lowest, highest = wide.amin(dims, keepdim=True), wide.amax(dims, keepdim=True)
        step = (highest - lowest) / LEVELS
        codes = (wide - lowest).div_(step.clamp_min(torch.finfo(step.dtype).tiny)).round_().to(torch.uint8)
        return Codes(codes, lowest, step, x.dtype)

    def unpack(self, kept: Codes) -> Tensor:
        """The tensor, each value within half a step."""
        return kept.codes.to(kept.step.dtype).mul_(kept.step).add_(kept.lowest).to(kept.dtype)

    def _shared(self, x: Tensor) -> tuple[int, ...]:
        """Dimensions that share a scale."""
        places = tuple(range(2, x.dim()))
        if not self.by_utterance:
            return (0, *places)
        return places if math.prod(x.shape[2:]) >= FEWEST else tuple(range(1, x.dim()))
