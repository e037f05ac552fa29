"""Inverted bottlenecks a group of hidden channels at a time: 1x1 to many channels, depthwise, 1x1 back.

All that happens between the two 1x1 convolutions concerns each hidden channel alone, the statistics of BatchNorm too.
So a group of them is evaluated and differentiated by itself, and its tensors are gone before the next one's are made.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.manual_layers import Convolution, NormRelu
from svtoolkit.reversible.recomputation import ParameterGradients


class HiddenLayers(NamedTuple):
    """``project(relu(depthwise_norm(depthwise(relu(expand_norm(expand(x)))))))``, all of them plain."""

    expand: nn.Conv2d
    expand_norm: nn.BatchNorm2d
    depthwise: nn.Conv2d
    depthwise_norm: nn.BatchNorm2d
    project: nn.Conv2d

    def groups(self, count: int) -> list[slice]:
        """So many groups of hidden channels, as equal as may be."""
        hidden = self.expand.out_channels
        bounds = [hidden * number // count for number in range(count + 1)]
        return [slice(*pair) for pair in pairwise(bounds) if pair[0] < pair[1]]


class HiddenGroup:
    """Hidden channels ``rows``: forward, then backward; gradients of weights go to ``parts``."""

    def __init__(self, layers: HiddenLayers, rows: slice, parts: WeightParts) -> None:
        self.layers, self.rows, self.parts = layers, rows, parts
        self.expand = Convolution(layers.expand, layers.expand.weight[rows])
        self.depthwise = Convolution(layers.depthwise, layers.depthwise.weight[rows], groups=rows.stop - rows.start)
        self.project = Convolution(layers.project, layers.project.weight[:, rows])

    def forward(self, wide: Tensor) -> Tensor:
        """What the group adds to the result."""
        self.outer = NormRelu(self.layers.expand_norm, self.expand(wide), self.rows)
        self.inner = NormRelu(self.layers.depthwise_norm, self.depthwise(self.outer.value), self.rows)
        return self.project(self.inner.value)

    def backward(self, wide: Tensor, grad_output: Tensor) -> Tensor:
        """What the group adds to the gradient of ``wide``."""
        upstream = self._through(self.project, self.layers.project, self.inner, grad_output)
        del self.inner
        upstream = self._through(self.depthwise, self.layers.depthwise, self.outer, upstream)
        del self.outer
        self.parts.keep(self.layers.expand.weight, self.expand.weight_gradient(wide, upstream))
        return self.expand.input_gradient(wide, upstream)

    def _through(self, convolution: Convolution, layer: nn.Conv2d, norm: NormRelu, grad_output: Tensor) -> Tensor:
        self.parts.keep(layer.weight, convolution.weight_gradient(norm.value, grad_output))
        dx, dw, db = norm.input_gradient(convolution.input_gradient(norm.value, grad_output))
        self.parts.keep(norm.layer.weight, dw)
        self.parts.keep(norm.layer.bias, db)
        return dx


class WeightParts:
    """Gradients of weights, a group of hidden channels after the other."""

    def __init__(self, layers: HiddenLayers) -> None:
        self._columns = layers.project.weight
        self._parts: dict[Tensor, list[Tensor]] = {}

    def keep(self, parameter: Tensor, gradient: Tensor) -> None:
        """That of the next group."""
        self._parts.setdefault(parameter, []).append(gradient)

    def add_to(self, gradients: ParameterGradients) -> None:
        """Those of all groups."""
        for parameter, pieces in self._parts.items():
            gradients.add(parameter, torch.cat(pieces, dim=1 if parameter is self._columns else 0))


def residual_gradient(
    layers: HiddenLayers, last: nn.BatchNorm2d, x: Tensor, grad_output: Tensor, request: Request, groups: int
) -> Tensor:
    """Gradient of ``relu(last(...(x)) + x)`` for x: all groups forward, then each once more and backward.

    Args:
        last: BatchNorm of the sum of what the groups make.
        groups: their number.
    """
    out: Tensor | None = None
    parts = WeightParts(layers)
    for rows in layers.groups(groups):
        value = HiddenGroup(layers, rows, parts).forward(x)
        dtype = value.dtype
        value = value.to(torch.promote_types(dtype, torch.float32))
        out = value if out is None else out.add_(value)
        del value
    assert out is not None
    norm = NormRelu(last, out.to(dtype), relu=False)
    del out
    result = norm.take() + x
    downstream = torch.ops.aten.threshold_backward(grad_output.to(result.dtype), result, 0)
    del grad_output, result
    inner, dw, db = norm.input_gradient(downstream.to(dtype))
    del norm
    request.gradients.add(last.weight, dw)
    request.gradients.add(last.bias, db)
    for rows in layers.groups(groups):
        group = HiddenGroup(layers, rows, parts)
        group.forward(x)
        downstream.add_(group.backward(x, inner))
    parts.add_to(request.gradients)
    return downstream.to(x.dtype)
