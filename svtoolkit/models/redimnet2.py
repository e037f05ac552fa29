"""ReDimNet2: ReDimNet whose stages shorten time, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.config.networks import REDIMNET2_STAGES
from svtoolkit.errors import UserError
from svtoolkit.models.blocks import VectorNorm
from svtoolkit.models.pooling import AttentivePooling
from svtoolkit.models.redimnet import Dimensions, read_stages
from svtoolkit.models.redimnet_blocks import DualStage, FrequencyEmbedding, Mixing, Stage, ToRows, to_map
from svtoolkit.models.redimnet_time import TimeContext
from svtoolkit.reversible import Chain, Repetition


class MapHead(nn.Module):
    """The map of rows, with a 1x1 convolution: (batch, bins * channels, frames) -> (batch, out, bins, frames).

    Without ``out_channels`` there is no convolution.
    """

    def __init__(self, channels: int, out_channels: int | None) -> None:
        super().__init__()
        self.channels = channels
        self.conv = nn.Identity() if out_channels is None else nn.Conv2d(channels, out_channels, 1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.conv(to_map(rows, self.channels))


class RowHead(nn.Module):
    """1x1 convolution of rows: (batch, rows, frames) -> (batch, out, frames)."""

    def __init__(self, rows: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(rows, out_channels, 1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.conv(rows)


class ReDimNet2(Dimensions):
    """ReDimNet2 (Palabra AI, 2026), with the names of WeSpeaker's port: ReDimNet whose stages shorten time, too.

    Time is brought back to its length at the end of each stage; frames at the end that fill no stride are left out. Its
    attention looks at all frames, so that long recordings cannot be embedded in stretches.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        channels: of the stem; a map has as many rows as bins times them.
        stages: stride, blocks, expansion, reduction, time stride and kernels of each, as in ``StageSetup``.
        kind, group_width: of the two-dimensional blocks, as of a ``ReDimNet``.
        time_block: of the one-dimensional blocks: conv+att, conv, att or fc.
        out_channels: what the map is reduced to before the pooling; None: it is pooled as it is.
        pool_map: whether bins remain in that reduction.
        grouped_strides: whether the convolutions that stages begin with have as many groups as they can.
        dual_maps: whether a stage with a one-dimensional block gives its map before it, too.
        map_norm: GroupNorm of every map that is mixed.
        frequency_embedding: whether stages begin with a vector of every bin.
        global_context: whether the attention of the pooling sees the whole utterance.
        embedding_norm: BatchNorm of the embedding.
        pad_frames: frames of zeros behind those of an utterance.
        skip_frames: frames at the beginning that are not pooled.

    Raises:
        ValueError: a size or a name that makes no network.
    """

    def __init__(
        self,
        *,
        num_bins: int,
        embedding_dim: int,
        channels: int = 24,
        stages: Sequence[Sequence[Any]] = REDIMNET2_STAGES,
        kind: str = "basic",
        group_width: int = 1,
        time_block: str = "conv+att",
        out_channels: int | None = None,
        pool_map: bool = False,
        grouped_strides: bool = True,
        dual_maps: bool = False,
        map_norm: bool = False,
        frequency_embedding: bool = False,
        global_context: bool = True,
        embedding_norm: bool = False,
        pad_frames: int = 0,
        skip_frames: int = 0,
    ) -> None:
        if pad_frames < 0 or skip_frames < 0:
            raise ValueError(f"pad_frames is {pad_frames} and skip_frames {skip_frames}, expected 0 or more")
        setup = read_stages(stages, 6)
        super().__init__(num_bins, embedding_dim, channels, setup, out_channels)
        self.pad_frames, self.skip_frames = pad_frames, skip_frames

        def norm() -> list[nn.Module]:
            return [nn.GroupNorm(channels, self.rows)] if map_norm else []

        if map_norm:
            self.stem_norm = norm()[0]
        self.mixings, self.stages, bins, self.time_stride = (
            nn.ModuleList([Mixing(1, self.rows)]),
            nn.ModuleList(),
            self.bins,
            1,
        )
        maps = 1
        for given, stage in zip(self.channels, setup, strict=True):
            self.time_stride *= stage.time_stride
            width = given * stage.stride
            wide = self._wide(width, stage)
            step = (stage.stride, self.time_stride)
            groups = math.gcd(given, wide) if grouped_strides else 1
            layers: list[nn.Module] = [FrequencyEmbedding(given, bins)] if frequency_embedding else []
            bins //= stage.stride
            layers.append(nn.Conv2d(given, wide, step, stride=step, groups=groups))
            layers += self._blocks(kind, wide, bins, group_width, stage)
            if stage.expansion != 1:
                layers.append(nn.Sequential(nn.Conv2d(wide, width, 1), nn.BatchNorm2d(width, eps=1e-6)))
            layers.append(ToRows())
            context = [TimeContext(self.rows, stage.reduction, time_block)] if stage.reduction is not None else []
            ends = [[Repetition(self.time_stride), *norm()] for _ in range(1 + (dual_maps and bool(context)))]
            if dual_maps and context:
                of_map, of_context = (nn.Sequential(*end) for end in ends)
                self.stages.append(DualStage(Chain(*layers), context[0], of_map, of_context))
            else:
                self.stages.append(Stage([*layers, *context], ends[0]))
            maps += len(ends)
            self.mixings.append(Mixing(maps, self.rows))
        self.head = nn.Identity()
        pooled = self.rows
        if pool_map:
            width = self.channels[-1] * setup[-1].stride
            self.head = MapHead(width, out_channels)
            pooled = bins * (out_channels or width)
        elif out_channels is not None:
            self.head = RowHead(self.rows, out_channels)
            pooled = out_channels
        self.pooling = AttentivePooling(pooled, global_context=global_context)
        norms = [VectorNorm(embedding_dim)] if embedding_norm else []
        self.embedding = nn.Sequential(VectorNorm(2 * pooled), nn.Linear(2 * pooled, embedding_dim), *norms)

    def first_map(self, frames: Tensor) -> Tensor:
        """(batch, 1, bins, frames) -> (batch, rows, frames)."""
        rows = self.stem(frames)
        return self.stem_norm(rows) if hasattr(self, "stem_norm") else rows

    def frames_used(self, frames: int) -> int:
        return (frames + self.pad_frames) // self.time_stride * self.time_stride

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, rows, frames) or (batch, channels, bins, frames).

        Raises:
            UserError: fewer frames than the strides of time make one of, or than are skipped.
        """
        count = self.frames_used(frames.shape[1])
        frames = F.pad(frames, (0, 0, 0, self.pad_frames))
        if count <= self.skip_frames:
            needed = (self.skip_frames // self.time_stride + 1) * self.time_stride
            raise UserError(
                f"an utterance has {frames.shape[1]} frames, and a ReDimNet2 needs {needed} or more: leave "
                "out what is shorter, or choose another network"
            )
        return super().feature_map(frames[:, :count])[..., self.skip_frames :]
