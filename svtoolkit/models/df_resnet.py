"""DF-ResNet and Gemini-DF-ResNet: depth-first networks of narrow bottleneck blocks around a depthwise convolution."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from svtoolkit.models.blocks import DFBottleneck, conv3x3, strided_size
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.speaker_network import ChainNetwork, SpeakerNetwork

WIDTHS = (32, 64, 128, 256)
STRIDES = (None, (2, 2), (2, 2), (2, 2))
"""(frequency, time) of the downsampling that a stage begins with; None: it has none."""
GEMINI_STRIDES = ((2, 1), (2, 2), (2, 1), (2, 1))


@dataclass(frozen=True)
class DFResNetSpec:
    """What tells one DF-ResNet from another (Liu et al., "DF-ResNet", Interspeech 2022).

    Attributes:
        blocks: number of them a stage.
        gemini: strides of Golden Gemini T14c (Liu et al., arXiv:2312.03620, as in WeSpeaker), which halve the frequency
            axis in every stage, the first one too, and time only in the second.
    """

    blocks: tuple[int, int, int, int]
    gemini: bool = False

    @property
    def layers(self) -> int:
        """Stem, convolutions of the blocks and the last Linear; of Gemini, as its authors count, the downsamplings."""
        return 1 + DFBottleneck.convolutions * sum(self.blocks) + 1 + (len(GEMINI_STRIDES) if self.gemini else 0)

    def build(self, *, num_bins: int, embedding_dim: int) -> SpeakerNetwork:
        """A network with fresh weights."""
        channels, bins = WIDTHS[0], num_bins
        stem = nn.Sequential(conv3x3(1, channels), nn.BatchNorm2d(channels), nn.ReLU())
        stages = []
        strides = GEMINI_STRIDES if self.gemini else STRIDES
        for width, stride, count in zip(WIDTHS, strides, self.blocks, strict=True):
            stage: list[nn.Module] = []
            if stride is not None:
                stage.append(nn.Sequential(conv3x3(channels, width, stride), nn.BatchNorm2d(width)))
                channels, bins = width, strided_size(bins, stride[0])
            stage += [DFBottleneck(channels) for _ in range(count)]
            stages.append(nn.Sequential(*stage))
        return ChainNetwork(stem, stages, StatisticsPooling(), nn.Linear(2 * channels * bins, embedding_dim))
