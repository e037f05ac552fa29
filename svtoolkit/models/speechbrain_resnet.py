"""SpeechBrain's ResNet: pre-activated blocks of three convolutions, squeeze-and-excitation in the first two stages."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import VectorNorm, conv1x1, conv3x3, projection_shortcut, strided_size
from svtoolkit.models.ecapa_tdnn import SqueezeExcitation
from svtoolkit.models.pooling import NormalisedAttentivePooling
from svtoolkit.models.speaker_network import PooledNetwork
from svtoolkit.reversible import Chain

FACTORS, STRIDES = (1, 1, 2, 2), (1, 2, 2, 2)
"""Of the four stages: channels to those of the first, stride of the first block."""
EXCITED = 2
"""Stages with squeeze-and-excitation."""


class PreactivatedBlock(nn.Module):
    """BatchNorm and ReLU before each of three convolutions, 3x3, 3x3 and 1x1, and nothing after the sum.

    (batch, in, frames, bins) -> (batch, out, frames / stride, bins / stride).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, *, excited: bool) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = conv3x3(in_channels, out_channels, stride)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.conv2 = conv3x3(out_channels, out_channels)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.conv3 = conv1x1(out_channels, out_channels)
        self.excitation = SqueezeExcitation(out_channels, out_channels) if excited else nn.Identity()
        self.shortcut = projection_shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        out = self.conv3(F.relu(self.bn3(out)))
        return self.excitation(out) + self.shortcut(x)


class SpeechBrainResNet(PooledNetwork):
    """SpeechBrain's ResNet with attentive pooling and BatchNorm on the statistics and on the embedding.

    Its maps have the frames before the bins. Squeeze-and-excitation and attention look at all frames, so that long
    recordings cannot be embedded in stretches.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        blocks: number of them a stage.
        width: published channels of the first stage.
        base_width: replaces the published width.

    Raises:
        ValueError: a width below 1.
    """

    maskable = False

    def __init__(
        self,
        *,
        num_bins: int,
        embedding_dim: int,
        blocks: tuple[int, int, int, int],
        width: int,
        base_width: int | None = None,
    ) -> None:
        super().__init__()
        width = width if base_width is None else base_width
        if width < 1:
            raise ValueError(f"base_width is {width}, expected a whole number of 1 or more")
        self.embedding_dim = embedding_dim
        self.stem = nn.Sequential(conv3x3(1, width), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = nn.ModuleList()
        channels, bins = width, num_bins
        for index, (count, factor, stride) in enumerate(zip(blocks, FACTORS, STRIDES, strict=True)):
            stage = Chain()
            for position in range(count):
                stage.append(
                    PreactivatedBlock(channels, width * factor, 1 if position else stride, excited=index < EXCITED)
                )
                channels = width * factor
            self.stages.append(stage)
            bins = strided_size(bins, stride)
        statistics = 2 * channels * bins
        self.pooling = NormalisedAttentivePooling(channels * bins)
        self.embedding = nn.Sequential(
            VectorNorm(statistics), nn.Linear(statistics, embedding_dim), VectorNorm(embedding_dim)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not module.weight.is_meta:  # there torch imports its compiler for it
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, channels, bins / 8, frames / 8)."""
        value = self.stem(frames.unsqueeze(1))
        for stage in self.stages:
            value = stage(value)
        return value.transpose(2, 3)
