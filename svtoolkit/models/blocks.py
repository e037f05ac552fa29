"""Residual blocks; their module names are WeSpeaker's, so that state dicts map one to one."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.hidden_groups import HiddenLayers, residual_gradient
from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.manual_layers import has_hooks, is_plain


def conv3x3(in_channels: int, out_channels: int, stride: int | tuple[int, int] = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)


def conv1x1(in_channels: int, out_channels: int, stride: int | tuple[int, int] = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)


def strided_size(size: int, stride: int) -> int:
    """Output size of a 3x3 convolution with padding 1."""
    return (size - 1) // stride + 1


def projection_shortcut(in_channels: int, out_channels: int, stride: int | tuple[int, int]) -> nn.Sequential:
    """Identity where the shape stays, 1x1 convolution and BatchNorm where it changes."""
    if stride == 1 and in_channels == out_channels:
        return nn.Sequential()
    return nn.Sequential(conv1x1(in_channels, out_channels, stride), nn.BatchNorm2d(out_channels))


class VectorNorm(nn.BatchNorm1d):
    """BatchNorm of one vector an utterance: (batch, channels) -> the same.

    In training, a batch of one utterance has no statistics of its own: it is normalised by the running ones, and leaves
    them as they are.
    """

    def forward(self, vectors: Tensor) -> Tensor:
        if not self.training or len(vectors) > 1:
            return super().forward(vectors)
        return F.batch_norm(vectors, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)


def two_embedding_layers(statistics: int, embedding_dim: int) -> nn.Sequential:
    """Linear, ReLU, BatchNorm without scale and shift, Linear: (batch, statistics) -> (batch, embedding_dim)."""
    return nn.Sequential(
        nn.Linear(statistics, embedding_dim),
        nn.ReLU(),
        VectorNorm(embedding_dim, affine=False),
        nn.Linear(embedding_dim, embedding_dim),
    )


def embedding_of(statistics: int, embedding_dim: int, layers: int) -> nn.Linear | nn.Sequential:
    """One layer or two: (batch, statistics) -> (batch, embedding_dim).

    Raises:
        ValueError: another number of layers.
    """
    if layers not in (1, 2):
        raise ValueError(f"embedding_layers is {layers}, expected 1 or 2")
    return two_embedding_layers(statistics, embedding_dim) if layers == 2 else nn.Linear(statistics, embedding_dim)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions (He et al., CVPR 2016): (batch, in, bins, frames) -> (batch, channels, ...)."""

    expansion = 1
    convolutions = 2

    def __init__(self, in_channels: int, channels: int, stride: int | tuple[int, int] = 1) -> None:
        super().__init__()
        self.conv1 = conv3x3(in_channels, channels, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = projection_shortcut(in_channels, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        # One expression: no name holds a map beside the two that a layer reads and writes.
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return F.relu(out + self.shortcut(x), inplace=True)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 to four times the channels: (batch, in, ...) -> (batch, 4 * channels, ...)."""

    expansion = 4
    convolutions = 3

    def __init__(self, in_channels: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        out_channels = channels * self.expansion
        self.conv1 = conv1x1(in_channels, channels)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = conv1x1(channels, out_channels)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.shortcut = projection_shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True))), inplace=True)
        out = self.bn3(self.conv3(out))
        return F.relu(out + self.shortcut(x), inplace=True)


class DFBottleneck(nn.Module):
    """1x1 to four times the channels, depthwise 3x3, 1x1 back (Liu et al., Interspeech 2022); keeps the shape.

    (batch, channels, bins, frames) -> the same. WeSpeaker's Inverted_Bottleneck.
    """

    expansion = 4
    convolutions = 3
    groups = 8
    """In which ``backward_in_groups`` has the hidden channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = channels * self.expansion
        self.conv1 = conv1x1(channels, hidden)
        self.bn1 = nn.BatchNorm2d(hidden)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False)
        self.bn2 = nn.BatchNorm2d(hidden)
        self.conv3 = conv1x1(hidden, channels)
        self.bn3 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv3(F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))))
        return F.relu(self.bn3(out) + x)

    def is_as_built(self) -> bool:
        """Whether nothing was hooked or replaced."""
        return not has_hooks(self) and is_plain(self.conv1, self.bn1, self.conv2, self.bn2, self.conv3, self.bn3)

    def backward_in_groups(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor:
        """With 8 maps of the size of x at once, of which autograd needs 27; evaluates the block twice, not once."""
        layers = HiddenLayers(self.conv1, self.bn1, self.conv2, self.bn2, self.conv3)
        return residual_gradient(layers, self.bn3, x, grad_output, request, self.groups)
