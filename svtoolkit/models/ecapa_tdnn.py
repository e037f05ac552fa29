"""ECAPA-TDNN: convolutions over time, Res2Net blocks with squeeze-and-excitation, attention in the pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import VectorNorm
from svtoolkit.models.pooling import AttentivePooling
from svtoolkit.models.speaker_network import PooledNetwork
from svtoolkit.reversible import Chain

DILATIONS = (2, 3, 4)
"""Of the three blocks."""
SCALE = 8
"""Groups of channels in a block, each of which is added to the next."""
AGGREGATED = 1536
"""Channels of the map that is pooled."""


class TdnnUnit(nn.Module):
    """Convolution over time, ReLU, BatchNorm, in this order: (batch, in, frames) -> (batch, out, frames)."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)
        self.bn = nn.BatchNorm1d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(F.relu(self.conv(x)))


class Res2Unit(nn.Module):
    """Groups of channels one after the other, each with what became of those before it (Gao et al., TPAMI 2021).

    The last group stays as it is. (batch, channels, frames) -> the same.
    """

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        if channels % SCALE:
            raise ValueError(f"channels is {channels}, expected a multiple of {SCALE}")
        width = channels // SCALE
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation) for _ in range(SCALE - 1)
        )
        self.bns = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(SCALE - 1))

    def forward(self, x: Tensor) -> Tensor:
        *groups, last = x.chunk(SCALE, dim=1)
        results: list[Tensor] = []
        for group, conv, norm in zip(groups, self.convs, self.bns, strict=True):
            results.append(norm(F.relu(conv(results[-1] + group if results else group))))
        return torch.cat([*results, last], dim=1)


class SqueezeExcitation(nn.Module):
    """Channels weighted by what their means say, over time and bins where there are any (Hu et al., CVPR 2018).

    (batch, channels, ..., frames) -> the same.
    """

    def __init__(self, channels: int, hidden: int = 128) -> None:
        super().__init__()
        self.linear1 = nn.Linear(channels, hidden)
        self.linear2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.sigmoid(self.linear2(F.relu(self.linear1(x.flatten(2).mean(-1)))))
        return x * weights.unflatten(1, (-1, *[1] * (x.dim() - 2)))


class SERes2Block(nn.Sequential):
    """The SE-Res2Block of Desplanques et al., fig. 2: (batch, channels, frames) -> the same."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__(
            TdnnUnit(channels, channels),
            Res2Unit(channels, dilation),
            TdnnUnit(channels, channels),
            SqueezeExcitation(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class EcapaTdnn(PooledNetwork):
    """ECAPA-TDNN (Desplanques et al., Interspeech 2020) as WeSpeaker builds it.

    A block sees what the one before it made, not the sum of all; squeeze-and-excitation looks at all frames, so that
    long recordings cannot be embedded in stretches.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        channels: of the blocks, a multiple of 8.
        global_context: whether the attention of the pooling sees the statistics of the utterance (WeSpeaker's GLOB).
    """

    def __init__(self, *, num_bins: int, embedding_dim: int, channels: int, global_context: bool = False) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.stem = TdnnUnit(num_bins, channels, 5)
        self.stages = Chain(*(SERes2Block(channels, dilation) for dilation in DILATIONS))
        self.aggregation = nn.Conv1d(len(DILATIONS) * channels, AGGREGATED, 1)
        self.pooling = AttentivePooling(AGGREGATED, global_context=global_context)
        self.embedding = nn.Sequential(VectorNorm(2 * AGGREGATED), nn.Linear(2 * AGGREGATED, embedding_dim))

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, 1536, frames)."""
        results = self.stages.values(self.stem(frames.transpose(1, 2)))
        return F.relu(self.aggregation(torch.cat(results, dim=1)))
