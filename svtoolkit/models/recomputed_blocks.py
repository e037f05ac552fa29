"""What stands around the reversible sequences of a network: stem, transitions, ordinary residual blocks, the end.

Modules as any other for autograd; ``recompute_backward`` is the same gradient from the input alone, with tensors that
are freed as soon as they have been used. It overwrites grad_output.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import BasicBlock, Bottleneck, conv1x1, conv3x3
from svtoolkit.reversible import squeeze, unsqueeze
from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.manual_layers import (
    Convolution,
    NormRelu,
    add_weight_gradient,
    convolution_gradient,
    has_hooks,
    is_plain,
    norm_gradient,
    normalised,
)
from svtoolkit.reversible.recomputation import ParameterGradients


class ConvNormRelu(nn.Module):
    """3x3 convolution, BatchNorm, ReLU: (batch, in, bins, frames) -> (batch, out, bins / stride, frames / stride)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int | tuple[int, int] = 1) -> None:
        super().__init__()
        self.conv = conv3x3(in_channels, out_channels, stride)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)), inplace=True)

    def is_as_built(self) -> bool:
        return not has_hooks(self) and is_plain(self.conv, self.norm)

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor | None:
        """Recomputes the result of the convolution."""
        norm = NormRelu(self.norm, Convolution(self.conv)(x))
        grad_output = norm_gradient(norm, self._of_map(grad_output, x).to(norm.value.dtype), request.gradients)
        del norm
        add_weight_gradient(self.conv, x, grad_output, request.gradients)
        return Convolution(self.conv).input_gradient(x, grad_output) if request.needs_input else None

    def _of_map(self, grad_output: Tensor, x: Tensor) -> Tensor:
        """Gradient of the ReLU's result from that of the module's; may be overwritten."""
        return grad_output


class SqueezedTransition(ConvNormRelu):
    """To the next stage of a type II network: convolution to a quarter of its channels, then the squeeze.

    (batch, in, bins, frames) -> (batch, out, bins / 2, frames / 2), both rounded up.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels // 4)

    def forward(self, x: Tensor) -> Tensor:
        return squeeze(super().forward(x))

    def _of_map(self, grad_output: Tensor, x: Tensor) -> Tensor:
        return unsqueeze(grad_output, x.shape[2], x.shape[3])


class Reduction(ConvNormRelu):
    """1x1 convolution, BatchNorm, ReLU: (batch, channels, ...) -> (batch, channels / 4, ...)."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels // 4)
        self.conv = conv1x1(channels, channels // 4)


class DoubleStem(nn.Module):
    """Two ``ConvNormRelu``; the result of the first is recomputed too: (batch, 1, ...) -> (batch, out, ...)."""

    def __init__(self, out_channels: int) -> None:
        super().__init__()
        self.first = ConvNormRelu(1, out_channels)
        self.second = ConvNormRelu(out_channels, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))

    def is_as_built(self) -> bool:
        return not has_hooks(self) and self.first.is_as_built() and self.second.is_as_built()

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor | None:
        """First the second, then the first."""
        first, second = self.first, self.second
        value = normalised(first.norm, Convolution(first.conv)(x)).relu_()
        upstream = second.recompute_backward(value, grad_output, Request(request.gradients))
        assert upstream is not None
        del value
        return first.recompute_backward(x, upstream, request)


class FinalActivation(nn.Module):
    """BatchNorm and ReLU after the last stage (He et al., "Identity Mappings", ECCV 2016, sec. 4); the shape stays.

    Residual functions in pre-activation order leave a sum of convolutions, on which nothing non-linear has acted yet.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x), inplace=True)

    def is_as_built(self) -> bool:
        return not has_hooks(self) and is_plain(self.norm)

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor:
        """Normalises once more; the map is small, and its gradient comes in a layout of its own: no overwriting."""
        norm = NormRelu(self.norm, x, relu=False)
        result = norm.take().relu_()
        grad_output = torch.ops.aten.threshold_backward(grad_output.to(result.dtype), result, 0)
        del result
        return norm_gradient(norm, grad_output, request.gradients)


class RecomputedResidual(nn.Module):
    """``recompute_backward`` of a block relu(F(x) + shortcut(x)) with F of conv1, bn1, ReLU, conv2, bn2, ..."""

    convolutions: int
    shortcut: nn.Sequential

    def _layers(self) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
        names = range(1, self.convolutions + 1)
        return [(getattr(self, f"conv{number}"), getattr(self, f"bn{number}")) for number in names]

    def is_as_built(self) -> bool:
        layers = (layer for pair in self._layers() for layer in pair)
        return not has_hooks(self, self.shortcut) and is_plain(*self.shortcut, *layers)

    def forward(self, x: Tensor) -> Tensor:
        """As the block, with less between its layers."""
        value = x
        for position, (conv, norm) in enumerate(self._layers()):
            value = norm(conv(F.relu(value, inplace=True) if position else value))
        value = value + self.shortcut(x)
        return F.relu(value, inplace=True)

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor:
        """Keeps the inputs of the norms; the shortcut is evaluated once for ReLU's mask and once for its gradient."""
        shortcut = self._shortcut_value(x)
        inputs = self._inputs_of_norms(x)
        last = NormRelu(self._layers()[-1][1], inputs.pop(), relu=False)
        result = last.take().add_(shortcut)
        del shortcut
        torch.ops.aten.threshold_backward.grad_input(grad_output, result, 0, grad_input=grad_output)
        dtype = result.dtype
        del result
        inputs.append(norm_gradient(last, grad_output.to(dtype), request.gradients))
        del last
        dx = self._input_gradient(x, inputs, request.gradients)
        return dx.add_(self._shortcut_gradient(x, grad_output, request.gradients))

    def _inputs_of_norms(self, x: Tensor) -> list[Tensor]:
        inputs, value, before = [], x, None
        for conv, norm in self._layers():
            value = value if before is None else normalised(before, value).relu_()
            value, before = Convolution(conv)(value), norm
            inputs.append(value)
        return inputs

    def _input_gradient(self, x: Tensor, held: list[Tensor], gradients: ParameterGradients) -> Tensor:
        """Gradient of F for x; uses up ``held``: inputs of the norms but the last, gradient of that of the last."""
        layers, upstream = self._layers(), held.pop()
        for (conv, _), (_, before) in zip(layers[:0:-1], layers[-2::-1], strict=True):
            norm = NormRelu(before, held.pop())
            upstream = convolution_gradient(norm, conv, upstream, gradients, frugal=True)
            upstream = norm_gradient(norm, upstream, gradients)
            del norm
        first = layers[0][0]
        add_weight_gradient(first, x, upstream, gradients)
        return Convolution(first).input_gradient(x, upstream)

    def _projection(self) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
        conv, norm = self.shortcut
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        return conv, norm

    def _shortcut_value(self, x: Tensor) -> Tensor:
        if len(self.shortcut) == 0:
            return x
        conv, norm = self._projection()
        return normalised(norm, Convolution(conv)(x))

    def _shortcut_gradient(self, x: Tensor, grad_output: Tensor, gradients: ParameterGradients) -> Tensor:
        if len(self.shortcut) == 0:
            return grad_output
        conv, layer = self._projection()
        norm = NormRelu(layer, Convolution(conv)(x), relu=False)
        upstream = norm_gradient(norm, grad_output.to(norm.take().dtype), gradients)
        del norm
        add_weight_gradient(conv, x, upstream, gradients)
        return Convolution(conv).input_gradient(x, upstream)


class RecomputedBasicBlock(RecomputedResidual, BasicBlock):
    """The ordinary basic block, with ``recompute_backward``."""


class RecomputedBottleneck(RecomputedResidual, Bottleneck):
    """The ordinary bottleneck block, with ``recompute_backward``."""
