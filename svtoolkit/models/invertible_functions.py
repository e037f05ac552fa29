"""Residual functions that can be inverted layer by layer: those of RevNeXt, and other insides of RevNet's blocks."""

from __future__ import annotations

from torch import nn

from svtoolkit.models.blocks import conv3x3
from svtoolkit.reversible import CoupledConvolution, InvertibleBatchNorm2d, InvertibleLeakyReLU, LayerwiseFunction

INSIDES = ("standard", "in_place", "hybrid")
"""What model.insides may be."""


def hybrid_function(channels: int, *, slope: float, norm_floor: float) -> LayerwiseFunction:
    """Two coupled 3x3 convolutions on ``channels``, which keep nothing (Hascoet et al. 2023, fig. 8)."""
    return _function([CoupledConvolution(channels) for _ in range(2)], channels, slope, norm_floor)


def in_place_function(channels: int, *, slope: float, norm_floor: float) -> LayerwiseFunction:
    """Two ordinary 3x3 convolutions on ``channels``, each after a norm and an activation that can be inverted.

    Result of a norm, of its activation and input of the next convolution are one tensor (Rota Bulo et al., "In-Place
    Activated BatchNorm", CVPR 2018).
    """
    return _function([conv3x3(channels, channels) for _ in range(2)], channels, slope, norm_floor)


def _function(convolutions: list[nn.Module], channels: int, slope: float, norm_floor: float) -> LayerwiseFunction:
    layers: list[nn.Module] = []
    for convolution in convolutions:
        layers += [InvertibleBatchNorm2d(channels, norm_floor), InvertibleLeakyReLU(slope), convolution]
    return LayerwiseFunction(*layers)
