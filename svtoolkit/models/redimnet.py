"""ReDimNet and ReDimNet2: maps that keep their volume while they change between two dimensions and one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.models.blocks import VectorNorm, embedding_of
from svtoolkit.models.pooling import AttentivePooling
from svtoolkit.models.redimnet_blocks import (
    ChannelNorm,
    ConvNextBlock,
    GroupedBasicBlock,
    Mixing,
    TimeContext,
    ToRows,
    to_map,
)
from svtoolkit.models.speaker_network import PooledNetwork
from svtoolkit.reversible import Chain


class Stage(NamedTuple):
    """What a stage consists of.

    Attributes:
        stride: by which the frequency axis becomes shorter, and the channels more.
        blocks: number of two-dimensional blocks.
        expansion: channels of these blocks, in channels of the map.
        reduction: the one-dimensional block works on the rows of the map divided by it; None: there is no such block.
        time_stride: by which time becomes shorter, in this stage and all that follow.
    """

    stride: int
    blocks: int
    expansion: float
    reduction: int | None
    time_stride: int = 1


class _Dimensions(PooledNetwork):
    """What both generations have in common: a stem, stages that each see a mixture of all maps before, and its map.

    All maps are (batch, rows, frames), where rows are bins times channels; a stage makes (channels, bins) of them for
    its convolutions. Where the strides do not divide the bins, bins of 0 are put at the upper end: the mean of
    features whose mean was removed.
    """

    def __init__(self, num_bins: int, embedding_dim: int, channels: int, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.padding = -num_bins % math.prod(stage.stride for stage in stages)
        self.bins = num_bins + self.padding
        self.rows = self.bins * channels
        self.channels = [channels * math.prod(stage.stride for stage in stages[:index]) for index in range(len(stages))]
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), ChannelNorm(channels), ToRows())

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, rows, frames)."""
        maps = [self.stem(F.pad(frames, (0, self.padding)).transpose(1, 2).unsqueeze(1))]
        for channels, mixing, stage in zip(self.channels, self.mixings, self.stages, strict=False):
            maps.append(stage(to_map(mixing(maps), channels)))
        return self.mixings[-1](maps)

    mixings: nn.ModuleList
    stages: nn.ModuleList

    def _blocks(self, kind: str, channels: int, bins: int, group_width: int, count: int) -> list[nn.Module]:
        """Two-dimensional blocks; ``kind``: convnext, basic, or excited, which weights frequencies too."""
        if kind == "convnext":
            return [ConvNextBlock(channels, (3, 3), group_width) for _ in range(count)]
        return [GroupedBasicBlock(channels, bins, group_width, excited=kind == "excited") for _ in range(count)]


class ReDimNet(_Dimensions):
    """ReDimNet (Yakovlev et al., Interspeech 2024, arXiv:2407.18223), with the names of WeSpeaker's port.

    Its attention looks at all frames, so that long recordings cannot be embedded in stretches.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        channels: of the stem; a map has as many rows as bins times them.
        kind: of the two-dimensional blocks: convnext, basic or excited.
        group_width: channels of a group of their convolutions; a remainder of the map's is shared out.
        stages: stride, blocks, expansion and reduction of each, as in ``Stage``.
        embedding_layers: after the pooling, 1 or 2.
    """

    def __init__(
        self,
        *,
        num_bins: int,
        embedding_dim: int,
        channels: int,
        kind: str,
        group_width: int,
        stages: Sequence[tuple[int, int, int, int | None]],
        embedding_layers: int = 1,
    ) -> None:
        setup = [Stage(*stage) for stage in stages]
        super().__init__(num_bins, embedding_dim, channels, setup)
        counts = range(1, len(setup) + 2)
        self.mixings = nn.ModuleList(Mixing(count, self.rows if count > 1 else 1) for count in counts)
        self.stages, bins = nn.ModuleList(), self.bins
        for given, stage in zip(self.channels, setup, strict=True):
            width, bins = given * stage.stride, bins // stage.stride
            wide = int(width * stage.expansion)
            layers: list[nn.Module] = [nn.Conv2d(given, wide, (stage.stride, 1), stride=(stage.stride, 1))]
            layers += self._blocks(kind, wide, bins, group_width, stage.blocks)
            if wide != width:
                layers.append(
                    nn.Sequential(
                        nn.Conv2d(wide, width, 3, padding=1, groups=width // group_width),
                        nn.BatchNorm2d(width, eps=1e-6),
                        nn.GELU(),
                        nn.Conv2d(width, width, 1),
                    )
                )
            layers.append(ToRows())
            if stage.reduction is not None:
                layers.append(TimeContext(self.rows, stage.reduction))
            self.stages.append(Chain(*layers))
        self.pooling = AttentivePooling(self.rows, global_context=True)
        self.embedding = embedding_of(2 * self.rows, embedding_dim, embedding_layers)


class TimeUpsampling(nn.Module):
    """Every frame so many times: (batch, rows, frames) -> (batch, rows, frames * factor)."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.factor, dim=-1) if self.factor > 1 else x


class MapHead(nn.Module):
    """1x1 convolution of a map that comes as rows: (batch, bins * channels, frames) -> (batch, out, bins, frames)."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.conv(to_map(rows, self.conv.in_channels))


class RowHead(nn.Module):
    """1x1 convolution of rows: (batch, rows, frames) -> (batch, out, frames)."""

    def __init__(self, rows: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(rows, out_channels, 1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.conv(rows)


class ReDimNet2(_Dimensions):
    """ReDimNet2 (Palabra AI, 2026), with the names of WeSpeaker's port: ReDimNet whose stages shorten time, too.

    Time is brought back to its length at the end of each stage; frames at the end that fill no stride are left out. Its
    attention looks at all frames, so that long recordings cannot be embedded in stretches.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        channels: of the stem; a map has as many rows as bins times them.
        stages: stride, blocks, expansion, reduction and time stride of each, as in ``Stage``.
        out_channels: what the map is reduced to before the pooling; None: it is pooled as it is.
        pool_map: whether bins remain in that reduction.
    """

    def __init__(
        self,
        *,
        num_bins: int,
        embedding_dim: int,
        channels: int,
        stages: Sequence[tuple[int, int, float, int, int]],
        out_channels: int | None = None,
        pool_map: bool = False,
    ) -> None:
        setup = [Stage(*stage) for stage in stages]
        super().__init__(num_bins, embedding_dim, channels, setup)
        self.mixings = nn.ModuleList(Mixing(count, self.rows) for count in range(1, len(setup) + 2))
        self.stages, bins, self.time_stride = nn.ModuleList(), self.bins, 1
        for given, stage in zip(self.channels, setup, strict=True):
            self.time_stride *= stage.time_stride
            width, bins = given * stage.stride, bins // stage.stride
            strided = int(width * stage.expansion)
            step = (stage.stride, self.time_stride)
            layers: list[nn.Module] = [nn.Conv2d(given, strided, step, stride=step, groups=math.gcd(given, strided))]
            layers += self._blocks("basic", strided, bins, 1, stage.blocks)
            if strided != width:
                layers.append(nn.Sequential(nn.Conv2d(strided, width, 1), nn.BatchNorm2d(width, eps=1e-6)))
            layers.append(ToRows())
            if stage.reduction is not None:
                layers.append(TimeContext(self.rows, stage.reduction))
            self.stages.append(Chain(*layers, TimeUpsampling(self.time_stride)))
        self.head: nn.Module = nn.Identity()
        pooled = self.rows
        if out_channels is not None:
            width = self.channels[-1] * setup[-1].stride
            self.head = MapHead(width, out_channels) if pool_map else RowHead(self.rows, out_channels)
            pooled = out_channels * (bins if pool_map else 1)
        self.pooling = AttentivePooling(pooled, global_context=True)
        self.embedding = nn.Sequential(VectorNorm(2 * pooled), nn.Linear(2 * pooled, embedding_dim))

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, rows, frames) or (batch, channels, bins, frames).

        Raises:
            UserError: fewer frames than the strides of time make one of.
        """
        count = frames.shape[1] // self.time_stride * self.time_stride
        if not count:
            raise UserError(
                f"an utterance has {frames.shape[1]} frames, and a ReDimNet2 needs {self.time_stride} or more: leave "
                "out what is shorter, or choose another network"
            )
        return self.head(super().feature_map(frames[:, :count]))
