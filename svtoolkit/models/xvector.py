"""The x-vector network: convolutions over time without padding, statistics pooling, two embedding layers."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.models.blocks import two_embedding_layers
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.speaker_network import PooledNetwork
from svtoolkit.reversible import Chain

CONTEXTS = ((5, 1), (3, 2), (3, 3), (1, 1), (1, 1))
"""Kernel size and dilation of the five layers (Snyder et al., table 1)."""
LEAST_FRAMES = 1 + sum((kernel_size - 1) * dilation for kernel_size, dilation in CONTEXTS)


class FrameLayer(nn.Module):
    """Convolution over time, ReLU, BatchNorm without scale and shift, as in Kaldi.

    (batch, in, frames) -> (batch, out, frames - (kernel_size - 1) * dilation).
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation)
        self.bn = nn.BatchNorm1d(out_channels, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(F.relu(self.conv(x)))


class XVector(PooledNetwork):
    """The network of x-vectors (Snyder et al., ICASSP 2018); WeSpeaker's XVEC.

    The embedding is what the second layer after the pooling makes, where Kaldi takes the first.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        width: channels of the first four layers.
        pooled: channels of the fifth.
    """

    def __init__(self, *, num_bins: int, embedding_dim: int, width: int = 512, pooled: int = 1500) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        sizes = [num_bins, *[width] * (len(CONTEXTS) - 1), pooled]
        self.stages = Chain(
            *(FrameLayer(sizes[index], sizes[index + 1], *context) for index, context in enumerate(CONTEXTS))
        )
        self.pooling = StatisticsPooling()
        self.embedding = two_embedding_layers(2 * pooled, embedding_dim)

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, channels, frames - 14).

        Raises:
            UserError: fewer than 15 frames.
        """
        if frames.shape[1] < LEAST_FRAMES:
            raise UserError(
                f"an utterance has {frames.shape[1]} frames, and model=xvector needs {LEAST_FRAMES} or more: leave "
                "out what is shorter, or choose another network"
            )
        return self.stages(frames.transpose(1, 2))
