"""Residual functions of reversible blocks: F and G of the coupling, with gradients that keep little.

All are in pre-activation order, (BatchNorm, ReLU, convolution) again and again: an activation after the addition could
not be inverted. Each is a module whose forward pass autograd differentiates as any other, and has
``recompute_backward``, the same gradient from the input alone (see ``svtoolkit.reversible.manual_backward``).
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import conv1x1, conv3x3
from svtoolkit.models.hidden_groups import HiddenGroup, HiddenLayers, WeightParts
from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.manual_layers import (
    Convolution,
    NormRelu,
    batch_norm,
    convolution_gradient,
    has_hooks,
    is_plain,
    norm_gradient,
    normalised,
)


class PreActivation(nn.Module):
    """BatchNorm, ReLU, convolution: (batch, in, bins, frames) -> (batch, out, bins, frames)."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(conv.in_channels)
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.relu(self.norm(x), inplace=True))


class PreActivationFunction(nn.Sequential):
    """Pre-activated convolutions one after the other."""

    def __init__(self, *convolutions: nn.Conv2d) -> None:
        super().__init__(*(PreActivation(conv) for conv in convolutions))

    def _units(self) -> list[PreActivation]:
        return [unit for unit in self if isinstance(unit, PreActivation)]

    def is_as_built(self) -> bool:
        return not has_hooks(self, *self) and all(
            type(unit) is PreActivation and is_plain(unit.norm, unit.conv) for unit in self
        )

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor:
        """Keeps the inputs of the norms, and of the last convolution: beside x, 1.5 tensors of its size in the end."""
        inputs, value = [x], x
        for unit in self._units()[:-1]:
            value = Convolution(unit.conv)(normalised(unit.norm, value).relu_())
            inputs.append(value)
        del value
        last = self._units()[-1]
        norm: NormRelu | None = NormRelu(last.norm, inputs[-1])
        assert norm is not None
        value = Convolution(last.conv)(norm.value)
        downstream = grad_output.to(value.dtype)
        if request.value_hook is not None:
            request.value_hook(value)
        del value
        for unit in reversed(self._units()):
            source = inputs.pop()
            norm = NormRelu(unit.norm, source) if norm is None else norm
            del source
            downstream = convolution_gradient(norm, unit.conv, downstream, request.gradients)
            downstream = norm_gradient(norm, downstream, request.gradients)
            norm = None
        return downstream


def basic_function(channels: int) -> PreActivationFunction:
    """Two 3x3 convolutions on ``channels``."""
    return PreActivationFunction(conv3x3(channels, channels), conv3x3(channels, channels))


def bottleneck_function(channels: int) -> PreActivationFunction:
    """1x1 to a quarter of ``channels``, 3x3, 1x1 back."""
    narrow = channels // 4
    return PreActivationFunction(conv1x1(channels, narrow), conv3x3(narrow, narrow), conv1x1(narrow, channels))


class DepthFirstFunction(nn.Module):
    """1x1 to four times the channels, depthwise 3x3, 1x1 back (Liu et al., "DF-ResNet", Interspeech 2022).

    Hidden channels are processed in groups (see ``hidden_groups``) whose contributions to the result are added up in
    float32. Number and order of the groups belong to the arithmetic of the function, however it is differentiated.

    Args:
        channels: of input and result.
        groups: in which the 4 * channels hidden ones are processed; a divisor of their number.
    """

    expansion = 4

    def __init__(self, channels: int, groups: int = 1) -> None:
        super().__init__()
        hidden = channels * self.expansion
        if hidden % groups:
            raise ValueError(f"{hidden} hidden channels cannot be processed in {groups} equal groups")
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = conv1x1(channels, hidden)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False)
        self.norm3 = nn.BatchNorm2d(hidden)
        self.conv3 = conv1x1(hidden, channels)
        bounds = range(0, hidden + 1, hidden // groups)
        self._groups = [slice(*pair) for pair in pairwise(bounds)]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, bins, frames) -> the same shape, float32 or wider."""
        if not self._is_plain():
            return self._layer_by_layer(x)
        wide = F.relu(self.norm1(x), inplace=True)
        # Each group reads its own link of a chain of aliases, the first group the last link: autograd then adds their
        # gradients first group to last, the order of recompute_backward. Rounding depends on it.
        links = [wide]
        for _ in self._groups[1:]:
            links.append(links[-1].view_as(links[-1]))
        result: Tensor | None = None
        for rows in self._groups:
            value = Convolution(self.conv1, self.conv1.weight[rows])(links.pop())
            value = F.relu(self._normalised(self.norm2, value, rows), inplace=True)
            value = Convolution(self.conv2, self.conv2.weight[rows], groups=value.shape[1])(value)
            value = F.relu(self._normalised(self.norm3, value, rows), inplace=True)
            value = Convolution(self.conv3, self.conv3.weight[:, rows])(value)
            value = value.to(torch.promote_types(value.dtype, torch.float32))
            result = value if result is None else result.add_(value)
        for norm in (self.norm2, self.norm3):
            if norm.training and norm.track_running_stats and norm.num_batches_tracked is not None:
                norm.num_batches_tracked.add_(1)
        assert result is not None
        return result

    def _layer_by_layer(self, x: Tensor) -> Tensor:
        """For layers that were replaced (SyncBatchNorm, say) or have hooks: each is called, on all hidden channels."""
        value = self.conv1(F.relu(self.norm1(x)))
        value = self.conv2(F.relu(self.norm2(value)))
        value = self.conv3(F.relu(self.norm3(value)))
        return value.to(torch.promote_types(value.dtype, torch.float32))

    @staticmethod
    def _normalised(norm: nn.BatchNorm2d, x: Tensor, rows: slice) -> Tensor:
        return batch_norm(norm, x, norm.weight[rows], norm.bias[rows], rows=rows, tracked=norm.track_running_stats)

    def _is_plain(self) -> bool:
        return is_plain(self.norm1, self.conv1, self.norm2, self.conv2, self.norm3, self.conv3)

    def is_as_built(self) -> bool:
        return not has_hooks(self) and self._is_plain()

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor:
        """Every group forward, then backward, before the next one: one evaluation, one group's tensors at a time."""
        norm1 = NormRelu(self.norm1, x)
        result = downstream = None
        layers = HiddenLayers(self.conv1, self.norm2, self.conv2, self.norm3, self.conv3)
        parts = WeightParts(layers)
        for rows in self._groups:
            group = HiddenGroup(layers, rows, parts)
            value = group.forward(norm1.value)
            dtype = value.dtype
            value = value.to(torch.promote_types(dtype, torch.float32))
            result = value if result is None else result.add_(value)
            del value
            dx = group.backward(norm1.value, grad_output.to(dtype))
            downstream = dx if downstream is None else downstream.add_(dx)
            del group, dx
        assert result is not None
        assert downstream is not None
        if request.value_hook is not None:
            request.value_hook(result)
        del result
        parts.add_to(request.gradients)
        return norm_gradient(norm1, downstream, request.gradients)
