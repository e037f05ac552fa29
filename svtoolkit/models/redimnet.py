"""ReDimNet: maps that keep their volume while they change between two dimensions and one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.config.networks import REDIMNET_STAGES
from svtoolkit.models.blocks import VectorNorm, embedding_of
from svtoolkit.models.pooling import AttentivePooling
from svtoolkit.models.redimnet_blocks import (
    ChannelNorm,
    ConvNextBlock,
    DualStage,
    GroupedBasicBlock,
    Mixing,
    Stage,
    ToRows,
    groups_of,
    to_map,
)
from svtoolkit.models.redimnet_time import TimeContext
from svtoolkit.models.speaker_network import PooledNetwork
from svtoolkit.reversible import Chain, SharedValues, SharesValues

KINDS = ("convnext", "convnext_relu", "basic", "excited")
"""Of the two-dimensional blocks; excited ones weight frequencies too."""

MOST_STAGES, MOST_BLOCKS, MOST_CHANNELS, LARGEST_FACTOR, MOST_KERNELS = 8, 50, 4096, 64, 8
"""No published network comes near; a description with more is refused before anything is built."""


class StageSetup(NamedTuple):
    """What a stage consists of.

    Attributes:
        stride: by which the frequency axis becomes shorter, and the channels more.
        blocks: number of two-dimensional blocks.
        expansion: channels of these blocks, in channels of the map.
        reduction: the one-dimensional block works on the rows of the map divided by it; None: there is no such block.
        time_stride: by which time becomes shorter, in this stage and all that follow.
        kernels: of the convolutions beside each other in a ConvNeXt block, over (frequency, time).
    """

    stride: int
    blocks: int
    expansion: float
    reduction: int | None
    time_stride: int = 1
    kernels: Sequence[tuple[int, int]] = ((3, 3),)


def read_stages(given: Sequence[Sequence[Any]], values: int) -> list[StageSetup]:
    """The stages of a network from so many values each, or fewer.

    Raises:
        ValueError: too many, too few, of another type or beyond any network that was published.
    """
    if not 1 <= len(given) <= MOST_STAGES:
        raise ValueError(f"stages has {len(given)} items, expected 1 to {MOST_STAGES}")
    for index, stage in enumerate(given):
        if not (isinstance(stage, Sequence) and not isinstance(stage, str) and 4 <= len(stage) <= values):
            raise ValueError(
                f"stages[{index}] is {stage!r:.80}, expected a list: {', '.join(StageSetup._fields[:values])}"
            )
        _check(index, StageSetup(*stage))
    return [StageSetup(*stage) for stage in given]


def _check(index: int, stage: StageSetup) -> None:
    kernels = stage.kernels
    factor, pairs = f"a whole number from 1 to {LARGEST_FACTOR}", f"pairs of whole numbers from 1 to {LARGEST_FACTOR}"
    good = {
        "stride": (_whole(stage.stride), factor),
        "blocks": (_whole(stage.blocks, 0, MOST_BLOCKS), f"a whole number from 0 to {MOST_BLOCKS}"),
        "expansion": (
            type(stage.expansion) in (int, float) and 0 < stage.expansion <= LARGEST_FACTOR,
            f"a number above 0, at most {LARGEST_FACTOR}",
        ),
        "reduction": (stage.reduction is None or _whole(stage.reduction, 1, 1 << 20), "a whole number above 0 or null"),
        "time_stride": (_whole(stage.time_stride), factor),
        "kernels": (
            isinstance(kernels, Sequence)
            and 1 <= len(kernels) <= MOST_KERNELS
            and all(isinstance(size, Sequence) and len(size) == 2 and all(map(_whole, size)) for size in kernels),
            pairs,
        ),
    }
    for name, (fits, expected) in good.items():
        if not fits:
            raise ValueError(f"stages[{index}] has the {name} {getattr(stage, name)!r:.80}, expected {expected}")


def _whole(value: Any, least: int = 1, most: int = LARGEST_FACTOR) -> bool:
    return type(value) is int and least <= value <= most


class Dimensions(SharesValues, PooledNetwork):
    """What both generations have in common: a stem, stages that each see a mixture of all maps before, and its map.

    All maps are (batch, rows, frames), where rows are bins times channels; a stage makes (channels, bins) of them for
    its convolutions, and one map or several. Where the strides do not divide the bins, bins of 0 are put at the upper
    end: the mean of features whose mean was removed.

    Raises:
        ValueError: channels, strides or ``out_channels`` that no network has.
    """

    def __init__(
        self, num_bins: int, embedding_dim: int, channels: int, stages: Sequence[StageSetup], out_channels: int | None
    ) -> None:
        super().__init__()
        factor = math.prod(stage.stride for stage in stages)
        if not 1 <= channels <= MOST_CHANNELS or channels * factor > 16 * MOST_CHANNELS:
            raise ValueError(f"channels is {channels} before strides of {factor}, expected 1 to {MOST_CHANNELS}")
        if (steps := math.prod(stage.time_stride for stage in stages)) > LARGEST_FACTOR:
            raise ValueError(f"stages shorten time by {steps}, expected {LARGEST_FACTOR} or less")
        if out_channels is not None and out_channels < 1:
            raise ValueError(f"out_channels is {out_channels}, expected a number above 0 or null")
        self.embedding_dim = embedding_dim
        self.padding = -num_bins % factor
        self.bins = num_bins + self.padding
        self.rows = self.bins * channels
        self.channels = [channels * math.prod(stage.stride for stage in stages[:index]) for index in range(len(stages))]
        self.stem = Chain(nn.Conv2d(1, channels, 3, padding=1), ChannelNorm(channels), ToRows())

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> what the head makes of (batch, rows, frames)."""
        maps = SharedValues(self.sharing)
        maps.add(self.first_map(F.pad(frames, (0, self.padding)).transpose(1, 2).unsqueeze(1)), nn.Identity())
        for channels, mixing, stage in zip(self.channels, self.mixings, self.stages, strict=False):
            mixed, made_again = mixing(maps)
            with made_again:
                made = stage(to_map(mixed, channels))
            del mixed
            assert isinstance(stage, Stage | DualStage)
            for each, end in zip(made if isinstance(made, list) else [made], stage.ends(), strict=True):
                maps.add(each, end)
            del made, each
        mixed, made_again = self.mixings[-1](maps)
        with made_again:
            return self.head(mixed)

    def first_map(self, frames: Tensor) -> Tensor:
        """(batch, 1, bins, frames) -> (batch, rows, frames)."""
        return self.stem(frames)

    head: nn.Module
    mixings: nn.ModuleList
    stages: nn.ModuleList

    def _blocks(self, kind: str, channels: int, bins: int, group_width: int, stage: StageSetup) -> list[nn.Module]:
        """Two-dimensional blocks; ``kind``: one of ``KINDS``."""
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
        if kind.startswith("convnext"):
            rectified = kind == "convnext_relu"
            sizes = [(high, wide) for high, wide in stage.kernels]
            return [ConvNextBlock(channels, sizes, group_width, rectified=rectified) for _ in range(stage.blocks)]
        excited = kind == "excited"
        return [GroupedBasicBlock(channels, bins, group_width, excited=excited) for _ in range(stage.blocks)]

    def _wide(self, channels: int, stage: StageSetup) -> int:
        """Channels of the blocks of a stage, of those of its map."""
        wide = int(channels * stage.expansion)
        if not wide:
            raise ValueError(f"an expansion of {stage.expansion} leaves none of {channels} channels")
        return wide


class ReDimNet(Dimensions):
    """ReDimNet (Yakovlev et al., Interspeech 2024, arXiv:2407.18223), with the names of WeSpeaker's port.

    Its attention looks at all frames, so that long recordings cannot be embedded in stretches.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        channels: of the stem; a map has as many rows as bins times them.
        kind: of the two-dimensional blocks: convnext, convnext_relu, basic or excited.
        group_width: channels of a group of their convolutions; a remainder of the map's is shared out. 0: no groups.
        stages: stride, blocks, expansion and reduction of each, as in ``StageSetup``.
        embedding_layers: after the pooling, 1 or 2.
        time_block: of the one-dimensional blocks: conv+att, conv, att or fc.
        out_channels: rows that a convolution leaves of the last map; None: it is pooled as it is.
        global_context: whether the attention of the pooling sees the whole utterance.
        pooled_norm: BatchNorm between pooling and embedding, as in IDRnD's code.
        embedding_norm: BatchNorm of the embedding.

    Raises:
        ValueError: a size or a name that makes no network.
    """

    def __init__(
        self,
        *,
        num_bins: int,
        embedding_dim: int,
        channels: int = 16,
        kind: str = "convnext",
        group_width: int = 4,
        stages: Sequence[Sequence[Any]] = REDIMNET_STAGES,
        embedding_layers: int = 1,
        time_block: str = "conv+att",
        out_channels: int | None = None,
        global_context: bool = True,
        pooled_norm: bool = False,
        embedding_norm: bool = False,
    ) -> None:
        setup = read_stages(stages, 4)
        super().__init__(num_bins, embedding_dim, channels, setup, out_channels)
        counts = range(1, len(setup) + 2)
        self.mixings = nn.ModuleList(Mixing(count, self.rows if count > 1 else 1) for count in counts)
        self.stages, bins = nn.ModuleList(), self.bins
        for given, stage in zip(self.channels, setup, strict=True):
            width, bins = given * stage.stride, bins // stage.stride
            wide = self._wide(width, stage)
            layers: list[nn.Module] = [nn.Conv2d(given, wide, (stage.stride, 1), stride=(stage.stride, 1))]
            layers += self._blocks(kind, wide, bins, group_width, stage)
            if stage.expansion != 1:
                layers.append(
                    nn.Sequential(
                        nn.Conv2d(wide, width, 3, padding=1, groups=groups_of(width, group_width)),
                        nn.BatchNorm2d(width, eps=1e-6),
                        nn.GELU(),
                        nn.Conv2d(width, width, 1),
                    )
                )
            layers.append(ToRows())
            if stage.reduction is not None:
                layers.append(TimeContext(self.rows, stage.reduction, time_block))
            self.stages.append(Stage(layers))
        self.head = nn.Identity()
        if out_channels is not None:
            self.head = nn.Sequential(nn.Conv1d(self.rows, out_channels, 1), nn.BatchNorm1d(out_channels))
        pooled = self.rows if out_channels is None else out_channels
        self.pooling = AttentivePooling(pooled, global_context=global_context)
        self.embedding = _embedding(2 * pooled, embedding_dim, embedding_layers, pooled_norm, embedding_norm)


def _embedding(statistics: int, size: int, layers: int, pooled_norm: bool, embedding_norm: bool) -> nn.Module:
    """(batch, statistics) -> (batch, size)."""
    if not (pooled_norm or embedding_norm):
        return embedding_of(statistics, size, layers)
    if layers != 1:
        raise ValueError(f"embedding_layers is {layers}, but with pooled_norm or embedding_norm there is 1")
    return nn.Sequential(
        VectorNorm(statistics) if pooled_norm else nn.Identity(),
        nn.Linear(statistics, size),
        *([VectorNorm(size)] if embedding_norm else []),
    )
