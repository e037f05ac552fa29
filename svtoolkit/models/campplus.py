"""CAM++: a small residual network over time and frequency, then densely connected convolutions over time with masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import BasicBlock, VectorNorm, conv3x3, strided_size
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.speaker_network import PooledNetwork
from svtoolkit.reversible import Chain

HEAD_WIDTH = 32
"""Channels of the two-dimensional convolutions."""
WIDTH = 128
"""Channels after the first convolution over time, and inside a dense layer."""
GROWTH = 32
"""Channels that a dense layer adds."""
BLOCKS = ((12, 1), (24, 2), (16, 2))
"""Layers and dilation of the dense blocks."""
SEGMENT = 100
"""Frames over which a mask takes its local context."""


def _halving_stage() -> Chain:
    """Two blocks, of which the first halves the frequency axis."""
    return Chain(BasicBlock(HEAD_WIDTH, HEAD_WIDTH, (2, 1)), BasicBlock(HEAD_WIDTH, HEAD_WIDTH))


class ConvolutionHead(nn.Module):
    """Residual blocks that look at time and frequency: (batch, bins, frames) -> (batch, 32 * bins / 8, frames)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv3x3(1, HEAD_WIDTH)
        self.bn1 = nn.BatchNorm2d(HEAD_WIDTH)
        self.layer1 = _halving_stage()
        self.layer2 = _halving_stage()
        self.conv2 = conv3x3(HEAD_WIDTH, HEAD_WIDTH, (2, 1))
        self.bn2 = nn.BatchNorm2d(HEAD_WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        value = F.relu(self.bn1(self.conv1(x.unsqueeze(1))))
        value = self.layer2(self.layer1(value))
        return F.relu(self.bn2(self.conv2(value))).flatten(1, 2)

    @staticmethod
    def rows(num_bins: int) -> int:
        """Channels times frequency rows of the result."""
        for _ in range(3):
            num_bins = strided_size(num_bins, 2)
        return HEAD_WIDTH * num_bins


class ContextAwareMask(nn.Module):
    """Convolution over time, masked by what the utterance and a segment of it are like (sec. 3.2 of the paper).

    (batch, in, frames) -> (batch, out, frames).
    """

    def __init__(self, in_channels: int, out_channels: int, dilation: int) -> None:
        super().__init__()
        self.linear_local = nn.Conv1d(in_channels, out_channels, 3, padding=dilation, dilation=dilation, bias=False)
        self.linear1 = nn.Conv1d(in_channels, in_channels // 2, 1)
        self.linear2 = nn.Conv1d(in_channels // 2, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        # All frames of a segment have one mask; the last segment may be shorter, and its mean is over what it has.
        segments = F.avg_pool1d(x, SEGMENT, SEGMENT, ceil_mode=True)
        mask = torch.sigmoid(self.linear2(F.relu(self.linear1(x.mean(-1, keepdim=True) + segments))))
        return self.linear_local(x) * mask.repeat_interleave(SEGMENT, dim=-1)[..., : x.shape[-1]]


def _normalised(channels: int) -> nn.Sequential:
    norm = nn.Sequential()
    norm.add_module("batchnorm", nn.BatchNorm1d(channels))
    norm.add_module("relu", nn.ReLU())
    return norm


class DenseLayer(nn.Module):
    """The input, and behind it 32 channels made of it: (batch, in, frames) -> (batch, in + 32, frames)."""

    def __init__(self, in_channels: int, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = _normalised(in_channels)
        self.linear1 = nn.Conv1d(in_channels, WIDTH, 1, bias=False)
        self.nonlinear2 = _normalised(WIDTH)
        self.cam_layer = ContextAwareMask(WIDTH, GROWTH, dilation)

    def forward(self, x: Tensor) -> Tensor:
        added = self.cam_layer(self.nonlinear2(self.linear1(self.nonlinear1(x))))
        return torch.cat([x, added], dim=1)


class Transition(nn.Module):
    """BatchNorm, ReLU and half of the channels: (batch, in, frames) -> (batch, in / 2, frames)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.nonlinear = _normalised(channels)
        self.linear = nn.Conv1d(channels, channels // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.nonlinear(x))


class TimeReduction(nn.Module):
    """Convolution over time with stride 2, BatchNorm, ReLU: (batch, in, frames) -> (batch, 128, frames / 2)."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(in_channels, WIDTH, 5, stride=2, padding=2, bias=False)
        self.nonlinear = _normalised(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.nonlinear(self.linear(x))


class UnbiasedEmbedding(nn.Module):
    """A product without bias, BatchNorm without scale and shift: (batch, statistics) -> (batch, embedding_dim)."""

    def __init__(self, statistics: int, embedding_dim: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(statistics, embedding_dim, 1, bias=False)
        self.batchnorm = VectorNorm(embedding_dim, affine=False)

    def forward(self, statistics: Tensor) -> Tensor:
        return self.batchnorm(self.linear(statistics.unsqueeze(-1)).squeeze(-1))


class DenseStage(nn.Module):
    """Dense layers and a transition: (batch, in, frames) -> (batch, (in + 32 * count) / 2, frames)."""

    def __init__(self, in_channels: int, count: int, dilation: int) -> None:
        super().__init__()
        self.layers = Chain(*(DenseLayer(in_channels + GROWTH * number, dilation) for number in range(count)))
        self.transition = Transition(in_channels + GROWTH * count)

    def forward(self, x: Tensor) -> Tensor:
        return self.transition(self.layers(x))


class CamPlusPlus(PooledNetwork):
    """CAM++ (Wang et al., Interspeech 2023, arXiv:2303.00332); 3D-Speaker's and WeSpeaker's CAMPPlus.

    Masks look at all frames, so that long recordings cannot be embedded in stretches.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        blocks: layers and dilation of each dense block.
        pooling_eps: of the pooling.
    """

    def __init__(
        self,
        *,
        num_bins: int,
        embedding_dim: int,
        blocks: tuple[tuple[int, int], ...] = BLOCKS,
        pooling_eps: float = 1e-7,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.head = ConvolutionHead()
        self.stem = TimeReduction(self.head.rows(num_bins))
        channels, stages = WIDTH, []
        for count, dilation in blocks:
            stages.append(DenseStage(channels, count, dilation))
            channels = (channels + GROWTH * count) // 2
        self.stages = nn.ModuleList(stages)
        self.last = _normalised(channels)
        self.pooling = StatisticsPooling(pooling_eps)
        self.embedding = UnbiasedEmbedding(2 * channels, embedding_dim)
        for module in self.modules():
            if isinstance(module, nn.Conv1d) and not module.weight.is_meta:  # there torch imports its compiler for it
                nn.init.kaiming_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, channels, frames / 2)."""
        value = self.stem(self.head(frames.transpose(1, 2)))
        for stage in self.stages:
            value = stage(value)
        return self.last(value)
