"""Convolution and BatchNorm-ReLU whose gradients are computed by hand.

The kernels are those that autograd would call, so that results are equal bit for bit, and every tensor in between is
freed as soon as possible. Each call happens under ``torch.no_grad`` and under the autocast state of the forward pass.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.reversible.recomputation import ParameterGradients


def is_plain(*layers: nn.Module) -> bool:
    """Whether layers are convolutions and BatchNorms with nothing attached that calling their kernels would skip.

    Sub-classes (SyncBatchNorm, parametrised weights), biased convolutions and layers with hooks are not.
    """
    return not has_hooks(*layers) and all(
        (type(layer) is nn.Conv2d and layer.bias is None and layer.padding_mode == "zeros")
        or (type(layer) is nn.BatchNorm2d and layer.affine)
        for layer in layers
    )


def has_hooks(*modules: nn.Module) -> bool:
    """Whether anything is hooked to the call of a module, or put in its place."""
    return any(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
        for module in modules
    )


class Convolution:
    """A bias-free convolution with given weights, in the precision that autocast asks for."""

    def __init__(self, layer: nn.Conv2d, weight: Tensor | None = None, groups: int | None = None) -> None:
        self.weight = layer.weight if weight is None else weight
        self.stride, self.dilation = list(layer.stride), list(layer.dilation)
        self.padding = [int(size) for size in layer.padding]
        self.groups = layer.groups if groups is None else groups

    def __call__(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, None, self.stride, self.padding, self.dilation, self.groups)

    def weight_gradient(self, x: Tensor, grad_output: Tensor) -> Tensor:
        return self._gradients(x, grad_output, [False, True, False])[1]

    def input_gradient(self, x: Tensor, grad_output: Tensor) -> Tensor:
        """In the precision of ``x``, of which no more than size, type and layout are used."""
        return self._gradients(x, grad_output, [True, False, False])[0].to(x.dtype)

    def _gradients(self, x: Tensor, grad_output: Tensor, mask: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = x.to(grad_output.dtype), self.weight.to(grad_output.dtype)
        return torch.ops.aten.convolution_backward(
            grad_output, x, weight, None, self.stride, self.padding, self.dilation, False, [0, 0], self.groups, mask
        )


class NormRelu:
    """relu(batch_norm(x)) evaluated once more; keeps its input (not a copy) for ``input_gradient``.

    Attributes:
        input: x, of which nothing but size, type and layout may be used.
        value: the result, until ``take`` or ``reduce_to_mask``.
    """

    def __init__(self, layer: nn.BatchNorm2d, x: Tensor, rows: slice = slice(None), relu: bool = True) -> None:
        self.layer, self.rows, self.relu = layer, rows, relu
        self.input = x.detach().requires_grad_()
        self._weights = [t[rows].detach().requires_grad_() for t in (layer.weight, layer.bias)]
        with torch.enable_grad():
            result = batch_norm(layer, self.input, *self._weights, rows=rows, tracked=False)
            self._edge = torch.autograd.graph.get_gradient_edge(result)
        value = result.detach()  # BatchNorm's gradient does not read its result: it may be overwritten
        self._value: Tensor | None = value.relu_() if relu else value
        self._dead: Tensor | None = None

    @property
    def value(self) -> Tensor:
        assert self._value is not None
        return self._value

    def take(self) -> Tensor:
        """The result, given away."""
        value, self._value = self.value, None
        return value

    def reduce_to_mask(self) -> None:
        """Keep of the result no more than where ReLU was zero, a byte a value."""
        self._dead, self._value = self.value <= 0, None

    def input_gradient(self, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of input, weight and bias (of ``rows``); where there is a ReLU, OVERWRITES grad_output."""
        if self.relu and self._dead is not None:
            grad_output.masked_fill_(self._dead, 0)
        elif self.relu:
            torch.ops.aten.threshold_backward.grad_input(grad_output, self.take(), 0, grad_input=grad_output)
        self._dead = self._value = None
        dx, dw, db = torch.autograd.grad([self._edge], [self.input, *self._weights], [grad_output])
        return dx, dw, db


def batch_norm(
    layer: nn.BatchNorm2d, x: Tensor, weight: Tensor, bias: Tensor, *, rows: slice = slice(None), tracked: bool
) -> Tensor:
    """What ``layer`` does to the channels ``rows``; running statistics move only where ``tracked``."""
    mean, variance = layer.running_mean, layer.running_var
    use_batch = layer.training or mean is None
    if mean is not None and variance is not None and (tracked or not use_batch):
        mean, variance = mean[rows], variance[rows]
    else:
        mean = variance = None
    return F.batch_norm(x, mean, variance, weight, bias, use_batch, _momentum(layer, tracked and use_batch), layer.eps)


def _momentum(layer: nn.BatchNorm2d, is_moving: bool) -> float:
    """Weight of this batch in the running statistics: 1 / number of batches where they are plain averages."""
    if layer.momentum is not None:
        return layer.momentum
    count = layer.num_batches_tracked
    return 1 / (float(count) + 1) if is_moving and count is not None else 0.0


def normalised(layer: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """What ``layer`` makes of x, once more: running statistics stay as they are."""
    return batch_norm(layer, x, layer.weight, layer.bias, tracked=False)


def convolution_gradient(
    norm: NormRelu, layer: nn.Conv2d, grad_output: Tensor, gradients: ParameterGradients, *, frugal: bool = False
) -> Tensor:
    """Gradient of layer(norm.value) for that value.

    Args:
        frugal: reduce the value to ReLU's mask before its gradient is computed; takes longer.
    """
    dtype = norm.value.dtype
    add_weight_gradient(layer, norm.value, grad_output, gradients)
    if frugal:
        norm.reduce_to_mask()
    return Convolution(layer).input_gradient(norm.input, grad_output).to(dtype)


def add_weight_gradient(layer: nn.Conv2d, x: Tensor, grad_output: Tensor, gradients: ParameterGradients) -> None:
    """Gradient of layer(x) for the weight, where it is wanted."""
    if gradients.wants(layer.weight):
        gradients.add(layer.weight, Convolution(layer).weight_gradient(x, grad_output))


def norm_gradient(norm: NormRelu, grad_output: Tensor, gradients: ParameterGradients) -> Tensor:
    """Gradient of norm.value for the input of the norm; overwrites grad_output."""
    dx, dw, db = norm.input_gradient(grad_output)
    gradients.add(norm.layer.weight, dw)
    gradients.add(norm.layer.bias, db)
    return dx
