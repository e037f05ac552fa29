"""Squeeze: frequency and time to channels, without loss of volume."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

FACTOR = 2


def squeeze(x: Tensor) -> Tensor:
    """(batch, channels, bins, frames) -> (batch, 4 * channels, bins / 2, frames / 2).

    Space-to-depth as in i-RevNet (Jacobsen et al., ICLR 2018). An odd number of bins or frames is made even by one row
    of zeros at the end, as the padding of a convolution would.
    """
    odd_bins, odd_frames = x.shape[2] % FACTOR, x.shape[3] % FACTOR
    if odd_bins or odd_frames or torch.jit.is_tracing():  # the graph that is traced has to do for any number
        x = F.pad(x, (0, odd_frames, 0, odd_bins))
    return F.pixel_unshuffle(x, FACTOR)


def unsqueeze(y: Tensor, bins: int, frames: int) -> Tensor:
    """Inverse of ``squeeze``: (batch, 4 * channels, ...) -> (batch, channels, bins, frames); also its gradient."""
    x = F.pixel_shuffle(y, FACTOR)
    cut_bins, cut_frames = x.shape[2] - bins, x.shape[3] - frames
    return F.pad(x, (0, -cut_frames, 0, -cut_bins)) if cut_bins or cut_frames else x
