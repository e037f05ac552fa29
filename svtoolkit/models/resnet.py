"""ResNet for speaker verification in WeSpeaker's layout: 3x3 stem, strides 1, 2, 2, 2 in both axes, no max-pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import nn

from svtoolkit.models.blocks import BasicBlock, Bottleneck, conv3x3, embedding_of, strided_size
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.speaker_network import ChainNetwork
from svtoolkit.reversible import Chain

STRIDES = (1, 2, 2, 2)


BLOCKS: dict[str, type[BasicBlock] | type[Bottleneck]] = {"basic": BasicBlock, "bottleneck": Bottleneck}


class BlockSize(NamedTuple):
    """What a residual block is built with."""

    in_channels: int
    channels: int
    stride: int


def build_resnet(
    *,
    num_bins: int,
    embedding_dim: int,
    block: str,
    blocks: tuple[int, int, int, int],
    width: int = 32,
    stem_stride: tuple[int, int] = (1, 1),
    base_width: int | None = None,
    embedding_layers: int = 1,
    pooling_eps: float = 1e-7,
) -> ChainNetwork:
    """A ResNet with fresh weights.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        block: residual block of all stages, a key of ``BLOCKS``.
        blocks: number of them a stage.
        width: published channels of the first stage, doubled from stage to stage.
        stem_stride: of the stem, (frequency, time).
        base_width: replaces the published width.
        embedding_layers: after the pooling, 1 or 2.
        pooling_eps: added to the variance in the pooling.

    Raises:
        ValueError: ``base_width`` below 1, another number of embedding layers, an epsilon below 0.
    """
    residual = BLOCKS[block]
    return assemble_resnet(
        lambda index, sizes: Chain(*(residual(*size) for size in sizes)),
        num_bins=num_bins,
        embedding_dim=embedding_dim,
        block=block,
        blocks=blocks,
        width=width,
        stem_stride=stem_stride,
        base_width=base_width,
        embedding_layers=embedding_layers,
        pooling_eps=pooling_eps,
    )


def assemble_resnet(
    make_stage: Callable[[int, Sequence[BlockSize]], Chain],
    *,
    num_bins: int,
    embedding_dim: int,
    block: str,
    blocks: tuple[int, int, int, int],
    width: int,
    stem_stride: tuple[int, int],
    base_width: int | None,
    embedding_layers: int,
    pooling_eps: float,
) -> ChainNetwork:
    """A ResNet whose stages are made of number and blocks; the other arguments are those of ``build_resnet``."""
    if base_width is not None and base_width < 1:
        raise ValueError(f"base_width is {base_width}, expected a whole number of 1 or more")
    residual = BLOCKS[block]
    width = width if base_width is None else base_width
    stem = nn.Sequential(conv3x3(1, width, stem_stride), nn.BatchNorm2d(width), nn.ReLU())
    stages, channels, bins = [], width, strided_size(num_bins, stem_stride[0])
    for index, (count, stride) in enumerate(zip(blocks, STRIDES, strict=True)):
        sizes = []
        for position in range(count):
            sizes.append(BlockSize(channels, width * 2**index, stride if position == 0 else 1))
            channels = width * 2**index * residual.expansion
        stages.append(make_stage(index, sizes))
        bins = strided_size(bins, stride)
    embedding = embedding_of(2 * channels * bins, embedding_dim, embedding_layers)
    layers = 1 + residual.convolutions * sum(blocks) + 1  # shortcuts are not counted
    return ChainNetwork(stem, stages, StatisticsPooling(pooling_eps), embedding, layers=layers)
