"""RevNet and DF-RevNet for speaker verification (Liu & Qian, "Memory-Efficient Training for Deep Speaker Embedding
Learning", tables II to IV; the structure follows from the layer counts in the names and the parameter counts)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import nn

from svtoolkit.models.blocks import strided_size
from svtoolkit.models.invertible_functions import INSIDES, hybrid_function, in_place_function
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.recomputed_blocks import (
    ConvNormRelu,
    DoubleStem,
    FinalActivation,
    RecomputedBasicBlock,
    RecomputedBottleneck,
    SqueezedTransition,
)
from svtoolkit.models.residual_functions import DepthFirstFunction, basic_function, bottleneck_function
from svtoolkit.models.speaker_network import ChainNetwork
from svtoolkit.reversible import FLOOR, SLOPE, AdditiveCoupling, Chain, ReversibleSequence

HIDDEN_GROUPS = (8, 4, 2, 1)
"""Groups of hidden channels in the stages of DF-RevNet: maps shrink from stage to stage, and so does what they save."""


def build_revnet(
    *,
    num_bins: int,
    embedding_dim: int,
    kind: Literal["I", "II"],
    block: Literal["basic", "bottleneck"],
    channels: tuple[int, int, int, int],
    blocks: tuple[int, int, int, int],
    stem_stride: tuple[int, int] = (1, 1),
    insides: str = "standard",
    slope: float = SLOPE,
    norm_floor: float = FLOOR,
) -> ChainNetwork:
    """A RevNet with fresh weights.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        kind: I: every stage begins with an ordinary residual block, which also reduces the resolution; II: nothing
            but reversible blocks, with a squeeze between stages.
        block: basic (two 3x3 convolutions a residual function) or bottleneck (1x1, 3x3, 1x1).
        channels: of the stages; those of bottleneck stages are four times as many.
        blocks: of a stage; of type I one of them is the ordinary one.
        stem_stride: of the stem, (frequency, time).
        insides: what the residual functions are made of, one of ``INSIDES``.
        slope, norm_floor: of layers that can be inverted.

    Raises:
        ValueError: unknown insides, those that the blocks cannot have, slope or norm_floor out of range.
    """
    ordinary = RecomputedBasicBlock if block == "basic" else RecomputedBottleneck
    function = _function_of(block, insides, slope, norm_floor)
    widths = [ordinary.expansion * value for value in channels]
    first = channels[0] if kind == "I" else widths[0]
    stages, width = [], first
    for index, count in enumerate(blocks):
        entrance: list[nn.Module] = []
        if kind == "I":
            entrance.append(ordinary(width, channels[index], 2 if index else 1))
            count -= 1
        elif index:
            entrance.append(SqueezedTransition(width, widths[index]))
        width = widths[index]
        stages.append(Chain(*entrance, _sequence(function, width, count)))
    stem = ConvNormRelu(1, first, stem_stride)
    depth = 2 if block == "basic" else 3
    couplings = sum(blocks) - (4 if kind == "I" else 0)
    layers = (2 + 4 * depth if kind == "I" else 5) + 2 * depth * couplings
    return _network(stem, stages, width, _bins_after(num_bins, stem_stride[0]), embedding_dim, layers)


def build_df_revnet(
    *,
    num_bins: int,
    embedding_dim: int,
    kind: Literal["I", "II"],
    blocks: tuple[int, int, int, int],
    channels: tuple[int, int, int, int] = (48, 96, 192, 384),
) -> ChainNetwork:
    """A DF-RevNet with fresh weights.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        kind: I: stem of two convolutions, a convolution of stride 2 between stages; II: as RevNet II.
        blocks: of the stages; type I has one reversible block less in each.
        channels: of the stages.
    """
    stages, width = [], channels[0]
    for index, (count, groups) in enumerate(zip(blocks, HIDDEN_GROUPS, strict=True)):
        entrance: list[nn.Module] = []
        if index:
            transition = (width, channels[index])
            entrance.append(ConvNormRelu(*transition, 2) if kind == "I" else SqueezedTransition(*transition))
        width = channels[index]

        def function(half: int, groups: int = groups) -> DepthFirstFunction:
            return DepthFirstFunction(half, groups)

        stages.append(Chain(*entrance, _sequence(function, width, count - 1 if kind == "I" else count)))
    stem = DoubleStem(channels[0]) if kind == "I" else ConvNormRelu(1, channels[0])
    layers = 6 + 6 * (sum(blocks) - 4) if kind == "I" else 5 + 6 * sum(blocks)
    return _network(stem, stages, width, _bins_after(num_bins, 1), embedding_dim, layers)


def _function_of(block: str, insides: str, slope: float, norm_floor: float) -> Callable[[int], nn.Module]:
    """Channels -> residual function."""
    standard = basic_function if block == "basic" else bottleneck_function
    if insides not in INSIDES:
        raise ValueError(f"insides is {insides!r:.80}, expected one of {', '.join(INSIDES)}")
    if insides == "standard" and (slope, norm_floor) != (SLOPE, FLOOR):
        raise ValueError(
            "slope and norm_floor are of blocks that can be inverted, and insides is 'standard'; "
            "choose model.insides=in_place or model.insides=hybrid, or leave them out"
        )
    if insides != "standard" and block == "bottleneck":
        raise ValueError(
            f"insides is {insides!r}, which saves nothing in bottleneck blocks; leave it at standard, or choose a "
            "network of basic blocks such as model=revnet57"
        )
    if insides == "standard":
        return standard
    build = hybrid_function if insides == "hybrid" else in_place_function
    return partial(build, slope=slope, norm_floor=norm_floor)


def _sequence(function: Callable[[int], nn.Module], width: int, count: int) -> ReversibleSequence:
    half = width // 2
    return ReversibleSequence(AdditiveCoupling(function(half), function(half)) for _ in range(count))


def _network(
    stem: nn.Module, stages: list[Chain], width: int, bins: int, embedding_dim: int, layers: int
) -> ChainNetwork:
    stages[-1].append(FinalActivation(width))
    embedding = nn.Linear(2 * width * bins, embedding_dim)
    return ChainNetwork(Chain(stem), stages, StatisticsPooling(), embedding, layers=layers)


def _bins_after(num_bins: int, stem_stride: int) -> int:
    """Frequency rows at the end: halved, rounding up, by the stem's stride and by three transitions."""
    for stride in (stem_stride, 2, 2, 2):
        num_bins = strided_size(num_bins, stride)
    return num_bins
