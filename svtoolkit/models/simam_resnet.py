"""SimAM-ResNet: a ResNet of basic blocks with attention that has no weights, and attentive pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import BasicBlock, conv3x3, strided_size
from svtoolkit.models.pooling import NormalisedAttentivePooling
from svtoolkit.models.speaker_network import ChainNetwork
from svtoolkit.reversible import Chain
from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.manual_layers import has_hooks
from svtoolkit.reversible.residual import residual_backward

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
    if torch.is_grad_enabled():
        energy = (wide - mean).square() / (4 * (variance + LAMBDA)) + 0.5
        return x * torch.sigmoid(energy).to(x.dtype)
    share = (wide - mean).square_().div_(4 * (variance + LAMBDA)).add_(0.5).sigmoid_()
    return share.to(x.dtype).mul_(x)


class Simam(nn.Module):
    """``simam`` as a layer, with its gradient from its input by hand."""

    def forward(self, x: Tensor) -> Tensor:
        return simam(x)

    def is_as_built(self) -> bool:
        """Whether nothing was hooked."""
        return not has_hooks(self)

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor:
        """With u the distance from the mean, k = 4 (variance + lambda) and s = sigmoid(u^2 / k + 1/2), y = x s."""
        wide, places = x.to(torch.promote_types(x.dtype, torch.float32)), (2, 3)
        count = wide[0, 0].numel()
        free = count - (1 if count > 1 else 0)
        variance, mean = torch.var_mean(wide, dim=places, correction=count - free, keepdim=True)
        scale = 4 * (variance + LAMBDA)
        distance = wide - mean
        share = distance.square().div_(scale).add_(0.5).sigmoid_()
        energy = grad_output * wide  # becomes the gradient of the energy, then that of the distance
        energy.mul_(share)
        energy.addcmul_(energy, share, value=-1)
        result = share.mul_(grad_output)
        energy.mul_(distance)
        spread = -4 * (energy * distance).sum(places, keepdim=True) / scale.square()
        energy.mul_(2 / scale)
        result.add_(energy).sub_(energy.mean(places, keepdim=True)).addcmul_(distance, 2 * spread / free)
        return result.to(x.dtype)


class SimamBlock(BasicBlock):
    """A basic block whose residual is weighted by ``simam`` before the addition."""

    def forward(self, x: Tensor) -> Tensor:
        out = simam(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True))))
        return F.relu(out + self.shortcut(x), inplace=True)

    def is_as_built(self) -> bool:
        """Whether nothing was hooked or derived."""
        return type(self) is SimamBlock and not has_hooks(self)

    def backward_in_groups(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor | None:
        """With four maps of the size of the result at once."""
        body = [self.conv1, self.bn1, nn.ReLU(), self.conv2, self.bn2, Simam()]
        return residual_backward(body, self.shortcut, x, grad_output, request)


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
