"""Res2Net, ERes2Net and ERes2NetV2 of 3D-Speaker: residual blocks whose groups of channels see each other in turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import conv1x1, conv3x3, embedding_of, projection_shortcut, strided_size
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.speaker_network import ChainNetwork, PooledNetwork
from svtoolkit.reversible import Chain, Leaf, Segment, run_in_chain
from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.manual_layers import has_hooks
from svtoolkit.reversible.residual import Head, residual_backward

BLOCKS = (3, 4, 6, 3)
STRIDES = (1, 2, 2, 2)


CEILING = 20.0


def clipped_relu(x: Tensor) -> Tensor:
    """ReLU that ends at ``CEILING``: the activation of these blocks, but not of the stem; overwrites x."""
    return F.hardtanh(x, 0.0, CEILING, inplace=True)


class _Attention(nn.Sequential):
    """What a fusion does with its two maps, which come one behind the other: (batch, 2 * channels, ...)."""

    def __init__(self, channels: int) -> None:
        hidden = channels // 4
        super().__init__(
            nn.Conv2d(2 * channels, hidden, 1),
            nn.BatchNorm2d(hidden),
            nn.SiLU(),
            nn.Conv2d(hidden, channels, 1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, both: Tensor) -> Tensor:
        x, y = both.chunk(2, dim=1)
        share = torch.tanh(super().forward(both))
        return x * (1.0 + share) + y * (1.0 - share)


class AttentionalFusion(nn.Module):
    """Two maps mixed by weights from 0 to 2 that are computed of both (Dai et al., WACV 2021).

    (batch, channels, bins, frames), twice -> the same shape.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.local_att = _Attention(channels)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.local_att(torch.cat([x, y], dim=1))


class StageFusion(Chain):
    """``AttentionalFusion`` of the maps of two stages, which is a chain of its own."""

    def __init__(self, channels: int) -> None:
        super().__init__(OrderedDict(local_att=_Attention(channels)))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(torch.cat([x, y], dim=1))


class Res2Block(nn.Module):
    """1x1, a 3x3 on each of ``scale`` groups of channels, 1x1 (Gao et al., TPAMI 2021).

    A group enters its convolution together with the result of the one before it. (batch, in, bins, frames) -> (batch,
    expansion * channels, ...).

    Args:
        in_channels, channels, stride: as for every residual block.
        base_width: channels of a group for every 64 of ``channels``.
        scale: number of groups.
        expansion: of the output.
        keep_last: whether the last group stays as it is, as in Res2Net.
        fuse: whether a group and the result before it are mixed by attention, not added.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        *,
        base_width: int = 32,
        scale: int = 2,
        expansion: int = 2,
        keep_last: bool = False,
        fuse: bool = False,
    ) -> None:
        super().__init__()
        width = channels * base_width // 64
        if width < (4 if fuse else 1):
            raise ValueError(f"{channels} channels of a stage leave {width} for a group, expected a wider network")
        convolved = scale - 1 if keep_last else scale
        self.scale = scale
        self.conv1 = conv1x1(in_channels, width * scale, stride)
        self.bn1 = nn.BatchNorm2d(width * scale)
        self.convs = nn.ModuleList(conv3x3(width, width) for _ in range(convolved))
        self.bns = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(convolved))
        self.fuse_models = nn.ModuleList(AttentionalFusion(width) for _ in range(convolved - 1)) if fuse else None
        self.conv3 = conv1x1(width * scale, channels * expansion)
        self.bn3 = nn.BatchNorm2d(channels * expansion)
        self.shortcut = projection_shortcut(in_channels, channels * expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn3(self.conv3(self.between(clipped_relu(self.bn1(self.conv1(x))))))
        return clipped_relu(out + self.shortcut(x))

    def between(self, x: Tensor) -> Tensor:
        """What happens between the two 1x1 convolutions."""
        groups = x.chunk(self.scale, dim=1)
        results: list[Tensor] = []
        for number, (conv, norm) in enumerate(zip(self.convs, self.bns, strict=True)):
            value = groups[number]
            if number:
                fuse = self.fuse_models[number - 1] if self.fuse_models is not None else torch.add
                value = fuse(results[-1], value)
            results.append(clipped_relu(norm(conv(value))))
        return torch.cat([*results, *groups[len(results) :]], dim=1)

    def is_as_built(self) -> bool:
        """Whether nothing was hooked or derived."""
        return type(self) is Res2Block and not has_hooks(self)

    def backward_in_groups(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor | None:
        """With two maps of the size of the result at once, and narrow ones."""
        narrow = Head(
            [self.conv1, _Entrance(self), _Between(self)],
            (Segment((Leaf(0, "norm"), Leaf(1, "norm"))), Segment((Leaf(2, "norm"),))),
            tuple(Leaf(position, "norm") for position in range(3)),
        )
        return residual_backward([self.conv3, self.bn3], self.shortcut, x, grad_output, request, CEILING, narrow)


class _Entrance(nn.Module):
    """The first BatchNorm of a block and its activation."""

    def __init__(self, block: Res2Block) -> None:
        super().__init__()
        self.norm = block.bn1

    def forward(self, x: Tensor) -> Tensor:
        return clipped_relu(self.norm(x))


class _Between(nn.Module):
    """``Res2Block.between`` as a layer."""

    def __init__(self, block: Res2Block) -> None:
        super().__init__()
        self.layers = nn.ModuleList([block.convs, block.bns])
        if block.fuse_models is not None:
            self.layers.append(block.fuse_models)
        self._between = block.between

    def forward(self, x: Tensor) -> Tensor:
        return self._between(x)


class ERes2Net(PooledNetwork):
    """Stages as of a ResNet, whose maps are fused from the bottom up (Chen et al., arXiv:2305.12838).

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        width: channels of the stem, of which the stages have 1, 2, 4 and 8 times as many, times ``expansion``.
        base_width, scale, expansion: of the blocks; those of the last two stages fuse their groups.
        fusions: how many of the last stages are fused with what is before them: 3 in ERes2Net, 1 in ERes2NetV2.
        pooling_eps: of the pooling.
        embedding_layers: after the pooling, 1 or 2.
        blocks: number of them a stage.
    """

    def __init__(
        self,
        *,
        num_bins: int,
        embedding_dim: int,
        width: int,
        base_width: int = 32,
        scale: int = 2,
        expansion: int = 2,
        fusions: int = 3,
        pooling_eps: float = 1e-7,
        embedding_layers: int = 1,
        blocks: Sequence[int] = BLOCKS,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.stem = _stem(width)
        channels, stages, outputs = width, [], []
        for index, (count, stride) in enumerate(zip(blocks, STRIDES, strict=True)):
            stages.append(
                _stage(
                    channels,
                    width * 2**index,
                    count,
                    stride,
                    base_width=base_width,
                    scale=scale,
                    expansion=expansion,
                    fuse=index >= 2,
                )
            )
            channels = width * 2**index * expansion
            outputs.append(channels)
        self.stages = nn.ModuleList(stages)
        steps = [(outputs[index - 1], outputs[index]) for index in range(len(blocks) - fusions, len(blocks))]
        self.downsamplings = nn.ModuleList(conv3x3(*step, 2) for step in steps)
        self.fusions = nn.ModuleList(StageFusion(channels) for _, channels in steps)
        self.pooling = StatisticsPooling(pooling_eps)
        self.embedding = embedding_of(2 * channels * _bins_after(num_bins), embedding_dim, embedding_layers)

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, channels, bins / 8, frames / 8)."""
        plain = len(self.stages) - len(self.fusions)
        value = run_in_chain([self.stem, *self.stages[:plain]], frames.transpose(1, 2).unsqueeze(1))
        fused = value
        for stage, downsampling, fusion in zip(self.stages[plain:], self.downsamplings, self.fusions, strict=True):
            value = stage(value)
            fused = fusion(value, downsampling(fused))
        return fused


def build_eres2netv2(
    *,
    num_bins: int,
    embedding_dim: int,
    width: int,
    base_width: int,
    scale: int,
    expansion: int,
    pooling_eps: float = 1e-8,
    embedding_layers: int = 1,
    blocks: Sequence[int] = BLOCKS,
) -> ERes2Net:
    """ERes2NetV2 (Chen et al., arXiv:2406.02167): wider groups, and only the last two stages fused; as ``ERes2Net``."""
    return ERes2Net(
        num_bins=num_bins,
        embedding_dim=embedding_dim,
        width=width,
        base_width=base_width,
        scale=scale,
        expansion=expansion,
        fusions=1,
        pooling_eps=pooling_eps,
        embedding_layers=embedding_layers,
        blocks=blocks,
    )


def build_res2net(
    *,
    num_bins: int,
    embedding_dim: int,
    width: int,
    pooling_eps: float = 1e-7,
    embedding_layers: int = 1,
    blocks: Sequence[int] = BLOCKS,
) -> ChainNetwork:
    """A Res2Net (Gao et al., TPAMI 2021) as 3D-Speaker builds it, with two groups of which the second stays.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        width: channels of the stem; the stages have 2, 4, 8 and 16 times as many.
        pooling_eps: of the pooling.
        embedding_layers: after the pooling, 1 or 2.
        blocks: number of them a stage.
    """
    channels, stages = width, []
    for index, (count, stride) in enumerate(zip(blocks, STRIDES, strict=True)):
        stages.append(_stage(channels, width * 2**index, count, stride, keep_last=True))
        channels = width * 2**index * 2
    embedding = embedding_of(2 * channels * _bins_after(num_bins), embedding_dim, embedding_layers)
    return ChainNetwork(_stem(width), stages, StatisticsPooling(pooling_eps), embedding)


def _stem(width: int) -> Chain:
    return Chain(conv3x3(1, width), nn.BatchNorm2d(width), nn.ReLU())


def _stage(
    in_channels: int,
    channels: int,
    count: int,
    stride: int,
    *,
    base_width: int = 32,
    scale: int = 2,
    expansion: int = 2,
    keep_last: bool = False,
    fuse: bool = False,
) -> Chain:
    """Blocks of one width; the first has the stride."""
    stage = Chain()
    for position in range(count):
        block = Res2Block(
            channels * expansion if position else in_channels,
            channels,
            1 if position else stride,
            base_width=base_width,
            scale=scale,
            expansion=expansion,
            keep_last=keep_last,
            fuse=fuse,
        )
        stage.append(block)
    return stage


def _bins_after(num_bins: int) -> int:
    for stride in STRIDES:
        num_bins = strided_size(num_bins, stride)
    return num_bins
