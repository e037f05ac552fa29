"""TitaNet and SpeakerNet of NeMo: Jasper blocks of separable convolutions over time, a pooling, one embedding layer.

NeMo pads a batch to a multiple of 16 frames and masks what it padded in every convolution, mean and pooling; without
the padding there is nothing to mask, and the embedding is the same.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import VectorNorm
from svtoolkit.models.pooling import StatisticsPooling, rows_of, seen_with_context
from svtoolkit.models.speaker_network import PooledNetwork
from svtoolkit.reversible import Chain

BLOCK_EPS = 1e-3
"""Of the BatchNorms in the blocks (nemo/collections/asr/parts/submodules/jasper.py)."""
POOLING_EPS = 1e-10
REDUCTION = 8
"""Channels of a block to those between the layers of its squeeze-and-excitation."""


class BlockShape(NamedTuple):
    """A block of a family: what is the same in all of its networks."""

    kernel_size: int
    repeats: int
    residual: bool


class Family(NamedTuple):
    """The blocks from the first to the last; whether they have squeeze-and-excitation; whether attention pools."""

    blocks: tuple[BlockShape, ...]
    excited: bool
    attentive: bool


_TITANET = ((3, 1, False), (7, 3, True), (11, 3, True), (15, 3, True), (1, 1, False))
_SPEAKERNET = ((3, 1, True), (7, 2, True), (11, 2, True), (15, 2, True), (1, 1, False))

FAMILIES = {
    "titanet": Family(tuple(BlockShape(*shape) for shape in _TITANET), excited=True, attentive=True),
    "speakernet": Family(tuple(BlockShape(*shape) for shape in _SPEAKERNET), excited=False, attentive=False),
}
"""NeMo, examples/speaker_tasks/recognition/conf; dropout is in the residual blocks alone."""


def separable_unit(in_channels: int, out_channels: int, kernel_size: int) -> nn.Sequential:
    """Depthwise convolution over time, 1x1, BatchNorm: (batch, in, frames) -> (batch, out, frames)."""
    return nn.Sequential(
        nn.Conv1d(in_channels, in_channels, kernel_size, padding=kernel_size // 2, groups=in_channels, bias=False),
        nn.Conv1d(in_channels, out_channels, 1, bias=False),
        nn.BatchNorm1d(out_channels, eps=BLOCK_EPS),
    )


class Excitation(nn.Module):
    """Channels weighted by what their means over time say (Hu et al., CVPR 2018), without biases; the shape stays."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = channels // REDUCTION
        if not hidden:
            raise ValueError(f"a block has {channels} channels, expected {REDUCTION} or more")
        self.squeeze = nn.Linear(channels, hidden, bias=False)
        self.excite = nn.Linear(hidden, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean(-1))))).unsqueeze(-1)


class JasperBlock(nn.Module):
    """Separable convolutions, ReLU and dropout after each (Li et al., Interspeech 2019; Kriman et al., ICASSP 2020).

    Squeeze-and-excitation and the shortcut come before the last ReLU. (batch, in, frames) -> (batch, out, frames).
    """

    def __init__(self, in_channels: int, channels: int, shape: BlockShape, *, excited: bool, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout if shape.residual else 0.0
        sizes = [in_channels] + [channels] * shape.repeats
        self.units = nn.ModuleList(
            separable_unit(sizes[index], channels, shape.kernel_size) for index in range(shape.repeats)
        )
        self.excitation = Excitation(channels) if excited else nn.Identity()
        self.shortcut: nn.Module | None = None
        if shape.residual:
            self.shortcut = nn.Sequential(
                nn.Conv1d(in_channels, channels, 1, bias=False), nn.BatchNorm1d(channels, eps=BLOCK_EPS)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for index, unit in enumerate(self.units):
            out = unit(self._activated(out) if index else out)
        out = self.excitation(out)
        return self._activated(out if self.shortcut is None else out + self.shortcut(x))

    def _activated(self, x: Tensor) -> Tensor:
        return F.dropout(F.relu(x), self.dropout, self.training)


class ContextPooling(nn.Module):
    """Mean and deviation over time, weighted by attention that sees those of the whole utterance, too.

    NeMo's AttentivePoolLayer: ReLU, BatchNorm and tanh between the layers; deviations are not below 1e-5, and those of
    the utterance are biased. Pooled in float32, as ``StatisticsPooling``.

    Args:
        channels: of the map.
        hidden: of the layer between map and weights.
    """

    def __init__(self, channels: int, hidden: int = 128) -> None:
        super().__init__()
        self.linear1 = nn.Conv1d(3 * channels, hidden, 1)
        self.norm = nn.BatchNorm1d(hidden)
        self.linear2 = nn.Conv1d(hidden, channels, 1)

    def forward(self, feature_map: Tensor) -> Tensor:
        """(batch, channels, frames) -> (batch, 2 * channels), float32 or float64."""
        rows = rows_of(feature_map)
        variance, mean = torch.var_mean(rows, dim=-1, correction=0)
        context = torch.cat([mean, variance.clamp(min=POOLING_EPS).sqrt()], dim=1)
        hidden = seen_with_context(self.linear1, rows, context)
        logits = self.linear2(torch.tanh(self.norm(F.relu(hidden))))
        weights = torch.softmax(logits.to(rows.dtype), dim=-1)
        mean = (weights * rows).sum(-1)
        variance = (weights * (rows - mean.unsqueeze(-1)).square()).sum(-1)
        return torch.cat([mean, variance.clamp(min=POOLING_EPS).sqrt()], dim=1)


class JasperNetwork(PooledNetwork):
    """TitaNet (Koluguri et al., ICASSP 2022), SpeakerNet (Koluguri et al., 2020).

    TitaNet takes a recording whole: squeeze-and-excitation and attention look at all frames. SpeakerNet pools by
    ``StatisticsPooling`` with 1e-10 under the root, where NeMo's deviation is that of a variance of 1e-10 or more: they
    differ by less than 5e-6.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        family: a key of ``FAMILIES``.
        base_width: channels of all blocks but the last.
        map_channels: of the last block.
        dropout: share of values that training leaves out after a ReLU of the residual blocks.

    Raises:
        ValueError: sizes below 1, a block of too few channels for squeeze-and-excitation, another share.
    """

    def __init__(
        self,
        *,
        num_bins: int,
        embedding_dim: int,
        family: str,
        base_width: int,
        map_channels: int,
        dropout: float,
    ) -> None:
        super().__init__()
        for key, value in (("base_width", base_width), ("map_channels", map_channels)):
            if value < 1:
                raise ValueError(f"{key} is {value}, expected a whole number of 1 or more")
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout is {dropout}, expected a share from 0 to below 1")
        shapes, excited, attentive = FAMILIES[family]
        sizes = [num_bins, *[base_width] * (len(shapes) - 1), map_channels]
        self.embedding_dim = embedding_dim
        self.stages = Chain(
            *(
                JasperBlock(sizes[index], sizes[index + 1], shape, excited=excited, dropout=dropout)
                for index, shape in enumerate(shapes)
            )
        )
        self.pooling = ContextPooling(map_channels) if attentive else StatisticsPooling(POOLING_EPS)
        linear = nn.Linear(2 * map_channels, embedding_dim)
        norm = VectorNorm(2 * map_channels) if attentive else VectorNorm(embedding_dim, affine=False)
        self.embedding = nn.Sequential(norm, linear) if attentive else nn.Sequential(linear, norm)
        for module in self.modules():
            if isinstance(module, nn.Conv1d | nn.Linear):
                nn.init.xavier_uniform_(module.weight)

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, map_channels, frames)."""
        return self.stages(frames.transpose(1, 2))


def build_titanet(
    *, width: int, base_width: int | None = None, map_channels: int = 3072, dropout: float = 0.1, **sizes: int
) -> JasperNetwork:
    """A TitaNet of so many published channels ``width``, which ``base_width`` replaces."""
    width = width if base_width is None else base_width
    return JasperNetwork(family="titanet", base_width=width, map_channels=map_channels, dropout=dropout, **sizes)


def build_speakernet(
    *, base_width: int | None = None, map_channels: int = 1500, dropout: float = 0.5, **sizes: int
) -> JasperNetwork:
    """A SpeakerNet, as published of 512 channels."""
    width = 512 if base_width is None else base_width
    return JasperNetwork(family="speakernet", base_width=width, map_channels=map_channels, dropout=dropout, **sizes)
