"""ResNet for speaker verification in WeSpeaker's layout: 3x3 stem, strides 1, 2, 2, 2 in both axes, no max-pool."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from svtoolkit.models.blocks import BasicBlock, Bottleneck, conv3x3, strided_size
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.speaker_network import ChainNetwork, SpeakerNetwork

STRIDES = (1, 2, 2, 2)


@dataclass(frozen=True)
class ResNetSpec:
    """What tells one ResNet from another.

    Attributes:
        block: residual block of all stages.
        blocks: number of them a stage.
        base_width: channels of the first stage, doubled from stage to stage.
        stem_stride: of the stem, (frequency, time).
    """

    block: type[BasicBlock] | type[Bottleneck]
    blocks: tuple[int, int, int, int]
    base_width: int = 32
    stem_stride: tuple[int, int] = (1, 1)

    @property
    def layers(self) -> int:
        """Convolutions of the main path and the last Linear; shortcuts are not counted."""
        return 1 + self.block.convolutions * sum(self.blocks) + 1

    def build(self, *, num_bins: int, embedding_dim: int, base_width: int | None = None) -> SpeakerNetwork:
        """A network with fresh weights; ``base_width`` replaces the published one."""
        width = self.base_width if base_width is None else base_width
        stem = nn.Sequential(conv3x3(1, width, self.stem_stride), nn.BatchNorm2d(width), nn.ReLU())
        stages, channels, bins = [], width, strided_size(num_bins, self.stem_stride[0])
        for index, (count, stride) in enumerate(zip(self.blocks, STRIDES, strict=True)):
            stage: list[nn.Module] = []
            for position in range(count):
                stage.append(self.block(channels, width * 2**index, stride if position == 0 else 1))
                channels = width * 2**index * self.block.expansion
            stages.append(nn.Sequential(*stage))
            bins = strided_size(bins, stride)
        return ChainNetwork(stem, stages, StatisticsPooling(), nn.Linear(2 * channels * bins, embedding_dim))
