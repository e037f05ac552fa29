"""RevNet and DF-RevNet for speaker verification (Liu & Qian, "Memory-Efficient Training for Deep Speaker Embedding
Learning", tables II to IV; the structure follows from the layer counts in the names and the parameter counts)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

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
from svtoolkit.models.speaker_network import ChainNetwork, SpeakerNetwork
from svtoolkit.reversible import AdditiveCoupling, Chain, ReversibleSequence

HIDDEN_GROUPS = (8, 4, 2, 1)
"""Groups of hidden channels in the stages of DF-RevNet: maps shrink from stage to stage, and so does what they save."""


@dataclass(frozen=True)
class RevNetSpec:
    """What tells one RevNet from another.

    Attributes:
        kind: I: every stage begins with an ordinary residual block, which also reduces the resolution; II: nothing
            but reversible blocks, with a squeeze between stages.
        block: basic (two 3x3 convolutions a residual function) or bottleneck (1x1, 3x3, 1x1).
        channels: of the stages; those of bottleneck stages are four times as many.
        blocks: of a stage; of type I one of them is the ordinary one.
        stem_stride: of the stem, (frequency, time).
    """

    kind: Literal["I", "II"]
    block: Literal["basic", "bottleneck"]
    channels: tuple[int, int, int, int]
    blocks: tuple[int, int, int, int]
    stem_stride: tuple[int, int] = (1, 1)

    @property
    def layers(self) -> int:
        """Convolutions of the main path and the last Linear."""
        depth = 2 if self.block == "basic" else 3
        if self.kind == "I":
            return 2 + 4 * depth + 2 * depth * (sum(self.blocks) - 4)
        return 5 + 2 * depth * sum(self.blocks)

    def build(self, *, num_bins: int, embedding_dim: int) -> SpeakerNetwork:
        """A network with fresh weights."""
        ordinary = RecomputedBasicBlock if self.block == "basic" else RecomputedBottleneck
        function = basic_function if self.block == "basic" else bottleneck_function
        widths = [ordinary.expansion * channels for channels in self.channels]
        first = self.channels[0] if self.kind == "I" else widths[0]
        stages, width = [], first
        for index, (channels, count) in enumerate(zip(self.channels, self.blocks, strict=True)):
            entrance: list[nn.Module] = []
            if self.kind == "I":
                entrance.append(ordinary(width, channels, 2 if index else 1))
                count -= 1
            elif index:
                entrance.append(SqueezedTransition(width, widths[index]))
            width = widths[index]
            stages.append(Chain(*entrance, _sequence(function, width, count)))
        stem = ConvNormRelu(1, first, self.stem_stride)
        bins = _bins_after(num_bins, self.stem_stride[0])
        return _network(stem, stages, width, bins, embedding_dim)


@dataclass(frozen=True)
class DFRevNetSpec:
    """What tells one DF-RevNet from another.

    Attributes:
        kind: I: stem of two convolutions, a convolution of stride 2 between stages; II: as RevNet II.
        channels: of the stages.
        blocks: of the stages; type I has one reversible block less in each.
    """

    kind: Literal["I", "II"]
    blocks: tuple[int, int, int, int]
    channels: tuple[int, int, int, int] = (48, 96, 192, 384)

    @property
    def layers(self) -> int:
        """Convolutions of the main path and the last Linear."""
        return 6 + 6 * (sum(self.blocks) - 4) if self.kind == "I" else 5 + 6 * sum(self.blocks)

    def build(self, *, num_bins: int, embedding_dim: int) -> SpeakerNetwork:
        """A network with fresh weights."""
        stages, width = [], self.channels[0]
        for index, (channels, count, groups) in enumerate(zip(self.channels, self.blocks, HIDDEN_GROUPS, strict=True)):
            entrance: list[nn.Module] = []
            if index:
                entrance.append(
                    ConvNormRelu(width, channels, 2) if self.kind == "I" else SqueezedTransition(width, channels)
                )
            width = channels

            def function(half: int, groups: int = groups) -> DepthFirstFunction:
                return DepthFirstFunction(half, groups)

            stages.append(Chain(*entrance, _sequence(function, width, count - 1 if self.kind == "I" else count)))
        first = self.channels[0]
        stem = DoubleStem(first) if self.kind == "I" else ConvNormRelu(1, first)
        return _network(stem, stages, width, _bins_after(num_bins, 1), embedding_dim)


def _sequence(function: Callable[[int], nn.Module], width: int, count: int) -> ReversibleSequence:
    half = width // 2
    return ReversibleSequence(AdditiveCoupling(function(half), function(half)) for _ in range(count))


def _network(stem: nn.Module, stages: list[Chain], width: int, bins: int, embedding_dim: int) -> SpeakerNetwork:
    stages[-1].append(FinalActivation(width))
    return ChainNetwork(Chain(stem), stages, StatisticsPooling(), nn.Linear(2 * width * bins, embedding_dim))


def _bins_after(num_bins: int, stem_stride: int) -> int:
    """Frequency rows at the end: halved, rounding up, by the stem's stride and by three transitions."""
    bins = -(-num_bins // stem_stride)
    for _ in range(3):
        bins = -(-bins // 2)
    return bins
