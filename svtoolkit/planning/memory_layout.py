"""channels_last: the channels of a bin and frame lie side by side in memory, which many kernels are faster with."""

from __future__ import annotations

import torch
from torch import nn

NARROWEST = 16
"""Input channels with which a strided 1x1 convolution is safe on any CPU: a vector of AVX-512 (8 of AVX2)."""


def fails_in_channels_last(network: nn.Module, device: torch.device) -> bool:
    """Whether training a network in channels_last may end the process or give wrong gradients.

    On mps BatchNorm gives wrong ones (https://github.com/pytorch/pytorch/issues/175189).
    On the CPU the gradient of a strided 1x1 convolution of few channels is written past the end of its workspace
    (oneDNN 3.12, which torch 2.13 holds; https://github.com/uxlfoundation/oneDNN/issues/6035).
    """
    return device.type == "mps" or (device.type == "cpu" and _has_narrow_shortcuts(network))


def _has_narrow_shortcuts(network: nn.Module) -> bool:
    return any(
        set(layer.kernel_size) == {1} and max(layer.stride) > 1 and layer.in_channels // layer.groups < NARROWEST
        for layer in network.modules()
        if isinstance(layer, nn.Conv2d)
    )


def lay_out_channels_last(network: nn.Module) -> None:
    """Bring the weights of all two-dimensional convolutions into that layout; what passes through them follows."""
    for weight in network.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.to(memory_format=torch.channels_last)
