"""RepVGG: parallel convolutions in training, one convolution in their place afterwards."""

from __future__ import annotations

import copy
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import strided_size
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.speaker_network import ChainNetwork
from svtoolkit.reversible import Chain

STRIDES = (1, 2, 2, 2)
GROUPED_BLOCKS = range(2, 27, 2)
"""Blocks with grouped convolutions, where there are any; counted from 1 over all stages."""


class ConvNorm(nn.Module):
    """Convolution and BatchNorm; time and frequency are padded so that a stride of 1 keeps them."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int, groups: int, dilation: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=dilation * (kernel_size // 2),
            dilation=dilation,
            groups=groups,
            bias=False,
        )
        self.bn = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x))


class Excitation(nn.Module):
    """Channels weighted by what their means over time and frequency say (Hu et al., CVPR 2018); the shape stays."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc_1 = nn.Linear(channels, channels // 4)
        self.fc_2 = nn.Linear(channels // 4, channels)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.sigmoid(self.fc_2(F.relu(self.fc_1(x.mean((2, 3))))))
        return x * weights.unsqueeze(-1).unsqueeze(-1)


class RepVggBlock(nn.Module):
    """The sum of parallel branches and a ReLU: (batch, in, bins, frames) -> (batch, out, ...).

    Branches: a 3x3 convolution; beside it a 1x1 convolution (Ding et al., CVPR 2021, fig. 2), or a 3x3 one of dilation
    2 (RSBB: Ma et al., arXiv:2110.09720); the identity where the shape stays. Each ends with BatchNorm. ``deploy`` puts
    one convolution of the size of the largest branch in their place.

    Args:
        in_channels, out_channels, stride, groups: of the convolutions.
        dilated: whether the second branch is the dilated one.
        deployed: whether the block is built as the one convolution.
        excited: whether squeeze-and-excitation follows the ReLU.
    """

    dense: ConvNorm

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int = 1,
        *,
        groups: int = 1,
        dilated: bool = False,
        deployed: bool = False,
        excited: bool = False,
    ) -> None:
        super().__init__()
        self.excitation = Excitation(out_channels) if excited else None
        self.size = 5 if dilated else 3
        self.sizes = (in_channels, out_channels, stride, groups)
        if deployed:
            self.fused = self._one_convolution()
            return
        self.dense = ConvNorm(in_channels, out_channels, 3, stride, groups)
        if dilated:
            self.dilated = ConvNorm(in_channels, out_channels, 3, stride, groups, dilation=2)
        else:
            self.pointwise = ConvNorm(in_channels, out_channels, 1, stride, groups)
        if stride == 1 and in_channels == out_channels:
            self.identity = nn.BatchNorm2d(in_channels)

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self._branches().values()
        value = first(x)
        for branch in others:
            value = value + branch(x)
        value = F.relu(value)
        return value if self.excitation is None else self.excitation(value)

    def _branches(self) -> dict[str, nn.Module]:
        return {name: module for name, module in self.named_children() if name != "excitation"}

    def deploy(self) -> None:
        """Replace the branches by one convolution with the same result in eval mode."""
        if hasattr(self, "fused"):
            return
        fused = self._one_convolution().to(self.dense.conv.weight)
        with torch.no_grad():
            nn.init.zeros_(fused.weight)
            bias = torch.zeros_like(fused.weight[:, 0, 0, 0])
            for branch in self._branches().values():
                kernel, norm = self._kernel_of(branch)
                assert norm.running_mean is not None
                assert norm.running_var is not None
                scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
                fused.weight += kernel * scale.view(-1, 1, 1, 1)
                bias += norm.bias - norm.running_mean * scale
            fused.bias = nn.Parameter(bias)
        for name in self._branches():
            delattr(self, name)
        self.fused = fused

    def _one_convolution(self) -> nn.Conv2d:
        in_channels, out_channels, stride, groups = self.sizes
        return nn.Conv2d(in_channels, out_channels, self.size, stride=stride, padding=self.size // 2, groups=groups)

    def _kernel_of(self, branch: nn.Module) -> tuple[Tensor, nn.BatchNorm2d]:
        """The convolution of a branch as one of the size of all, without its BatchNorm, and the BatchNorm."""
        if isinstance(branch, nn.BatchNorm2d):
            in_channels, _, _, groups = self.sizes
            width = in_channels // groups
            rows = torch.arange(in_channels, device=branch.weight.device)
            kernel = branch.weight.new_zeros(in_channels, width, self.size, self.size)
            kernel[rows, rows % width, self.size // 2, self.size // 2] = 1.0
            return kernel, branch
        assert isinstance(branch, ConvNorm)
        weight, dilation = branch.conv.weight, branch.conv.dilation[0]
        spread = (weight.shape[-1] - 1) * dilation + 1
        kernel = weight.new_zeros(*weight.shape[:2], self.size, self.size)
        first = (self.size - spread) // 2
        kernel[:, :, first : first + spread : dilation, first : first + spread : dilation] = weight
        return kernel, branch.bn


def build_repvgg(
    *,
    num_bins: int,
    embedding_dim: int,
    blocks: tuple[int, int, int, int],
    widths: tuple[int, int, int, int],
    groups: int = 1,
    dilated: bool = False,
    excited: bool = False,
    deployed: bool = False,
) -> ChainNetwork:
    """A RepVGG with fresh weights.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        blocks: number of them a stage.
        widths: channels of the stages.
        groups: of the convolutions of every second block.
        dilated: RSBB blocks.
        excited: blocks with squeeze-and-excitation, which looks at all frames: no stretches.
        deployed: whether every block is the one convolution that branches become after training.
    """
    channels = min(64, widths[0])
    kind = {"dilated": dilated, "excited": excited, "deployed": deployed}
    stem, stages, bins, number = RepVggBlock(1, channels, **kind), [], num_bins, 0
    for width, count, stride in zip(widths, blocks, STRIDES, strict=True):
        stage = Chain()
        for position in range(count):
            number += 1
            grouped = groups if number in GROUPED_BLOCKS else 1
            stage.append(RepVggBlock(channels, width, 1 if position else stride, groups=grouped, **kind))
            channels = width
        stages.append(stage)
        bins = strided_size(bins, stride)
    network = ChainNetwork(stem, stages, StatisticsPooling(), nn.Linear(2 * channels * bins, embedding_dim))
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and not module.weight.is_meta:  # there torch imports its compiler for it
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


def deploy(network: nn.Module) -> None:
    """Make the deployed form of a RepVGG, in place: the same embeddings in eval mode.

    What ``model.deployed=true`` builds takes its weights.
    """
    for module in network.modules():
        if isinstance(module, RepVggBlock):
            module.deploy()


def for_inference(network: nn.Module) -> nn.Module:
    """The same embeddings in eval mode from less work: a copy with blocks deployed, or the network itself.

    Blocks with a dilated branch stay: their one convolution has 25 weights a channel where the branches have 18.
    So do those with factors of low rank, whose product is what compression saved.
    """
    if not any(map(_is_less_deployed, network.modules())):
        return network
    network = copy.deepcopy(network)
    for module in network.modules():
        if _is_less_deployed(module):
            module.deploy()
    return network


def _is_less_deployed(module: nn.Module) -> TypeGuard[RepVggBlock]:
    if not isinstance(module, RepVggBlock) or module.size > 3 or hasattr(module, "fused"):
        return False
    return all(type(each.conv) is nn.Conv2d for each in (module.dense, module.pointwise))
