"""SpeechBrain's ECAPA-TDNN and x-vector network: ends that are reflected, BatchNorm after every activation."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.models.blocks import VectorNorm
from svtoolkit.models.ecapa_tdnn import DILATIONS, SCALE, SqueezeExcitation
from svtoolkit.models.pooling import ContextAttentivePooling, StatisticsPooling
from svtoolkit.models.speaker_network import PooledNetwork
from svtoolkit.models.xvector import CONTEXTS
from svtoolkit.reversible import Chain


class ReflectedUnit(nn.Module):
    """Convolution over time whose ends are reflected, an activation, BatchNorm, in this order.

    (batch, in, frames) -> (batch, out, frames). speechbrain/nnet/CNN.py pads in this way where nothing else is said.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        dilation: int = 1,
        activation: Callable[[Tensor], Tensor] = F.relu,
    ) -> None:
        super().__init__()
        around = (kernel_size - 1) // 2 * dilation
        self.conv = nn.Conv1d(
            in_channels,
            out_channels,
            kernel_size,
            dilation=dilation,
            padding=around,
            padding_mode="reflect" if around else "zeros",  # to reflect nothing would be a copy
        )
        self.bn = nn.BatchNorm1d(out_channels)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.activation(self.conv(x)))


class ReflectedRes2Unit(nn.Module):
    """Groups of channels one after the other, each with what became of the one before it (Gao et al., TPAMI 2021).

    The first group stays as it is, where in WeSpeaker the last one does. (batch, channels, frames) -> the same.
    """

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        width = channels // SCALE
        self.units = nn.ModuleList(ReflectedUnit(width, width, 3, dilation) for _ in range(SCALE - 1))

    def forward(self, x: Tensor) -> Tensor:
        first, *groups = x.chunk(SCALE, dim=1)
        results = [first]
        for index, (group, unit) in enumerate(zip(groups, self.units, strict=True)):
            results.append(unit(group + results[-1] if index else group))
        return torch.cat(results, dim=1)


class ReflectedSERes2Block(nn.Sequential):
    """The SE-Res2Block of Desplanques et al., fig. 2: (batch, channels, frames) -> the same."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__(
            ReflectedUnit(channels, channels),
            ReflectedRes2Unit(channels, dilation),
            ReflectedUnit(channels, channels),
            SqueezeExcitation(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class SpeechBrainEcapaTdnn(PooledNetwork):
    """ECAPA-TDNN (Desplanques et al., Interspeech 2020) as SpeechBrain and 3D-Speaker build it.

    It differs from WeSpeaker's in the ends of its convolutions, in the group of channels that stays as it is, in the
    map, which is three times as wide as a block and normalised, and in the pooling. Squeeze-and-excitation looks at all
    frames, so that long recordings cannot be embedded in stretches.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        width: published channels of the blocks, a multiple of 8.
        base_width: replaces the published width.

    Raises:
        ValueError: another width.
    """

    def __init__(self, *, num_bins: int, embedding_dim: int, width: int, base_width: int | None = None) -> None:
        super().__init__()
        width = width if base_width is None else base_width
        if width < 1 or width % SCALE:
            raise ValueError(f"base_width is {width}, expected a multiple of {SCALE}")
        aggregated = len(DILATIONS) * width
        self.embedding_dim = embedding_dim
        self.stem = ReflectedUnit(num_bins, width, 5)
        self.stages = Chain(*(ReflectedSERes2Block(width, dilation) for dilation in DILATIONS))
        self.aggregation = ReflectedUnit(aggregated, aggregated)
        self.pooling = ContextAttentivePooling(aggregated)
        self.embedding = nn.Sequential(VectorNorm(2 * aggregated), nn.Linear(2 * aggregated, embedding_dim))

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, 3 * width, frames).

        Raises:
            UserError: fewer than 5 frames.
        """
        _check_length(frames, 1 + max(DILATIONS), "sb_ecapa_tdnn")
        results = self.stages.values(self.stem(frames.transpose(1, 2)))
        return self.aggregation(torch.cat(results, dim=1))


class SpeechBrainXVector(PooledNetwork):
    """The network of x-vectors (Snyder et al., ICASSP 2018) as SpeechBrain builds it.

    It differs from Kaldi's in its leaky ReLUs, in convolutions that keep the number of frames, and in its embedding,
    the only layer after the pooling. SpeechBrain adds noise below 1e-4 to the pooled means, in evaluation too; here
    there is none.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        width: published channels of the first four layers.
        pooled: channels of the fifth.
        base_width: replaces the published width.

    Raises:
        ValueError: a width below 1.
    """

    def __init__(
        self, *, num_bins: int, embedding_dim: int, width: int, pooled: int, base_width: int | None = None
    ) -> None:
        super().__init__()
        width = width if base_width is None else base_width
        if width < 1:
            raise ValueError(f"base_width is {width}, expected a whole number of 1 or more")
        self.embedding_dim = embedding_dim
        sizes = [num_bins, *[width] * (len(CONTEXTS) - 1), pooled]
        self.stages = Chain(
            *(
                ReflectedUnit(sizes[index], sizes[index + 1], *context, F.leaky_relu)
                for index, context in enumerate(CONTEXTS)
            )
        )
        self.pooling = StatisticsPooling(0.0, after_root=1e-5)
        self.embedding = nn.Linear(2 * pooled, embedding_dim)

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, pooled, frames).

        Raises:
            UserError: fewer than 4 frames.
        """
        _check_length(frames, 4, "sb_xvector")
        return self.stages(frames.transpose(1, 2))


def _check_length(frames: Tensor, least: int, name: str) -> None:
    """What is reflected at an end has to be there."""
    if frames.shape[1] < least:
        raise UserError(
            f"an utterance has {frames.shape[1]} frames, and model={name} needs {least} or more: leave out what is "
            "shorter, or choose another network"
        )
