"""SimAM-ResNet: a ResNet of basic blocks with attention that has no weights, and attentive pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import BasicBlock, conv3x3, strided_size
from svtoolkit.models.pooling import NormalisedAttentivePooling
from svtoolkit.models.speaker_network import ChainNetwork
from svtoolkit.reversible import Chain

STRIDES = (1, 2, 2, 2)
LAMBDA = 1e-4
"""Keeps the energy of a channel finite that does not vary."""


def simam(x: Tensor) -> Tensor:
    """Values weighted by how far they are from the mean of their channel (Yang et al., ICML 2021, eq. 5).

    (batch, channels, bins, frames) -> the same; the statistics are those of float32 or wider.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    correction = 1 if wide[0, 0].numel() > 1 else 0
    variance, mean = torch.var_mean(wide, dim=(2, 3), correction=correction, keepdim=True)
    energy = (wide - mean).square() / (4 * (variance + LAMBDA)) + 0.5
    return x * torch.sigmoid(energy).to(x.dtype)


class SimamBlock(BasicBlock):
    """A basic block whose residual is weighted by ``simam`` before the addition."""

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(simam(out) + self.shortcut(x))


def build_simam_resnet(
    *, num_bins: int, embedding_dim: int, blocks: tuple[int, int, int, int], width: int = 64
) -> ChainNetwork:
    """A SimAM-ResNet with fresh weights (Qin et al., ICASSP 2022; VoxBlink2, Lin et al., Interspeech 2024).

    The attention looks at all frames, so that long recordings cannot be embedded in stretches.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        blocks: number of them a stage.
        width: channels of the first stage, doubled from stage to stage.
    """
    stem = nn.Sequential(conv3x3(1, width), nn.BatchNorm2d(width), nn.ReLU())
    stages, channels, bins = [], width, num_bins
    for index, (count, stride) in enumerate(zip(blocks, STRIDES, strict=True)):
        stage = Chain()
        for position in range(count):
            stage.append(SimamBlock(channels, width * 2**index, 1 if position else stride))
            channels = width * 2**index
        stages.append(stage)
        bins = strided_size(bins, stride)
    embedding = nn.Linear(2 * channels * bins, embedding_dim)
    layers = 1 + SimamBlock.convolutions * sum(blocks) + 1
    return ChainNetwork(stem, stages, NormalisedAttentivePooling(channels * bins), embedding, layers=layers)
