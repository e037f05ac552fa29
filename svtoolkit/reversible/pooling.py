"""Pooling that loses nothing: neighbours in frequency and time become channels, or utterances of the batch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.reversible.squeeze import FACTOR, squeeze, unsqueeze


class InvertiblePooling(nn.Module):
    """A reshape that each stream of a coupling goes through by itself; both ways exact (alpha = 1)."""

    def inverse(self, y: Tensor, bins: int, frames: int) -> Tensor:
        """The input, of so many bins and frames; also its gradient."""
        raise NotImplementedError


class ChannelPooling(InvertiblePooling):
    """(batch, channels, bins, frames) -> (batch, 4 * channels, bins / 2, frames / 2), rounded up: the squeeze.

    P_c of Hascoet et al. (2023, sec. 4.2.4), after Jacobsen et al. (ICLR 2018).
    """

    def forward(self, x: Tensor) -> Tensor:
        return squeeze(x)

    def inverse(self, y: Tensor, bins: int, frames: int) -> Tensor:
        return unsqueeze(y, bins, frames)


class BatchPooling(InvertiblePooling):
    """(batch, channels, bins, frames) -> (4 * batch, channels, bins / 2, frames / 2), rounded up.

    P_b of Hascoet et al. (2023, sec. 4.2.4): convolutions then see every other bin and frame, as dilated ones do, and
    have no more weights. The four maps of an utterance are neighbours. An odd number of bins or frames is made even by
    one row of zeros at the end.
    """

    def forward(self, x: Tensor) -> Tensor:
        odd_bins, odd_frames = x.shape[2] % FACTOR, x.shape[3] % FACTOR
        if odd_bins or odd_frames:
            x = F.pad(x, (0, odd_frames, 0, odd_bins))
        rows = x.unflatten(3, (-1, FACTOR)).unflatten(2, (-1, FACTOR))
        return rows.permute(0, 3, 5, 1, 2, 4).flatten(0, 2)

    def inverse(self, y: Tensor, bins: int, frames: int) -> Tensor:
        x = join_maps(y)
        cut_bins, cut_frames = x.shape[2] - bins, x.shape[3] - frames
        return F.pad(x, (0, -cut_frames, 0, -cut_bins)) if cut_bins or cut_frames else x


class BatchUnpooling(InvertiblePooling):
    """The four maps of an utterance as one: (4 * batch, channels, bins, frames) -> (batch, channels, 2 * bins, ...).

    What ``BatchPooling`` has made even stays so: cutting it off could not be undone.
    """

    def forward(self, x: Tensor) -> Tensor:
        return join_maps(x)

    def inverse(self, y: Tensor, bins: int, frames: int) -> Tensor:
        return BatchPooling()(y)


def join_maps(y: Tensor) -> Tensor:
    """(4 * batch, channels, bins, frames) -> (batch, channels, 2 * bins, 2 * frames)."""
    maps = y.unflatten(0, (-1, FACTOR, FACTOR))
    return maps.permute(0, 3, 4, 1, 5, 2).flatten(4, 5).flatten(2, 3)
