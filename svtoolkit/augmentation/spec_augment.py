"""SpecAugment masks (Park et al., Interspeech 2019), drawn for every crop by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from svtoolkit.errors import UserError


@dataclass(frozen=True)
class SpecAugment:
    """Policy of the masks.

    Attributes:
        probability: share of crops that get masks.
        time_masks, freq_masks: masks along each axis.
        time_width, freq_width: widest mask, in frames and bins; a width is drawn uniformly from 0 to it.

    Raises:
        UserError: a value out of range.
    """

    probability: float
    time_masks: int
    time_width: int
    freq_masks: int
    freq_width: int

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise UserError(f"augment.spec_probability is {self.probability}, expected a share from 0 to 1")
        for name in ("time_masks", "time_width", "freq_masks", "freq_width"):
            if getattr(self, name) < 0:
                raise UserError(f"augment.{name} is {getattr(self, name)}, expected 0 or more")

    def draw(self, frames: int, bins: int, rng: np.random.Generator) -> np.ndarray:
        """Masks of one crop: int64, shape (time_masks + freq_masks, 2), rows (begin, end); empty ones are (0, 0)."""
        sizes = [(frames, self.time_width)] * self.time_masks + [(bins, self.freq_width)] * self.freq_masks
        masks = np.zeros((len(sizes), 2), dtype=np.int64)
        if rng.random() >= self.probability:
            return masks
        for row, (size, widest) in enumerate(sizes):
            width = int(rng.integers(0, min(widest, size) + 1))
            begin = int(rng.integers(0, size - width + 1))
            masks[row] = begin, begin + width
        return masks

    def apply(self, features: Tensor, masks: Tensor) -> Tensor:
        """Set masked frames and bins to 0, the mean of mean-normalised features.

        Args:
            features: (batch, frames, bins).
            masks: (batch, time_masks + freq_masks, 2), from ``draw``.
        """
        time = _covered(masks[:, : self.time_masks], features.shape[1])
        freq = _covered(masks[:, self.time_masks :], features.shape[2])
        return features.masked_fill(time.unsqueeze(2) | freq.unsqueeze(1), 0.0)


def _covered(masks: Tensor, size: int) -> Tensor:
    """(batch, masks, 2) -> bool (batch, size): positions inside any mask."""
    positions = torch.arange(size, device=masks.device)
    inside = (positions >= masks[..., :1]) & (positions < masks[..., 1:])
    return inside.any(dim=1)
