"""DF-ResNet and Gemini-DF-ResNet: depth-first networks of narrow bottleneck blocks around a depthwise convolution."""

from __future__ import annotations

from torch import nn

from svtoolkit.models.blocks import DFBottleneck, conv3x3, embedding_of, strided_size
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.speaker_network import ChainNetwork
from svtoolkit.reversible import Chain

WIDTHS = (32, 64, 128, 256)
STRIDES = (None, (2, 2), (2, 2), (2, 2))
"""(frequency, time) of the downsampling that a stage begins with; None: it has none."""
GEMINI_STRIDES = ((2, 1), (2, 2), (2, 1), (2, 1))


def build_df_resnet(
    *,
    num_bins: int,
    embedding_dim: int,
    blocks: tuple[int, int, int, int],
    gemini: bool = False,
    embedding_layers: int = 1,
) -> ChainNetwork:
    """A DF-ResNet with fresh weights (Liu et al., "DF-ResNet", Interspeech 2022).

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        blocks: number of them a stage.
        gemini: strides of Golden Gemini T14c (Liu et al., arXiv:2312.03620, as in WeSpeaker), which halve the frequency
            axis in every stage, the first one too, and time only in the second.
        embedding_layers: after the pooling, 1 or 2.
    """
    channels, bins = WIDTHS[0], num_bins
    stem = nn.Sequential(conv3x3(1, channels), nn.BatchNorm2d(channels), nn.ReLU())
    stages = []
    for width, stride, count in zip(WIDTHS, GEMINI_STRIDES if gemini else STRIDES, blocks, strict=True):
        stage: list[nn.Module] = []
        if stride is not None:
            stage.append(nn.Sequential(conv3x3(channels, width, stride), nn.BatchNorm2d(width)))
            channels, bins = width, strided_size(bins, stride[0])
        stage += [DFBottleneck(channels) for _ in range(count)]
        stages.append(Chain(*stage))
    embedding = embedding_of(2 * channels * bins, embedding_dim, embedding_layers)
    # Downsamplings are counted in Gemini alone, as its authors do.
    layers = 1 + DFBottleneck.convolutions * sum(blocks) + 1 + (len(GEMINI_STRIDES) if gemini else 0)
    return ChainNetwork(stem, stages, StatisticsPooling(), embedding, layers=layers)
