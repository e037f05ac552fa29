"""A norm of the whole batch and the layers after it: values and gradients of some utterances at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.reversible.batch_norms import Norm, Sums, input_gradient, normalised, sums_of
from svtoolkit.reversible.chunks import KNOWN_NORMS
from svtoolkit.reversible.manual_backward import recompute_backward
from svtoolkit.reversible.recomputation import ParameterGradients

CLIPS = (nn.ReLU, nn.Hardtanh)
"""Activations whose gradient follows from their results."""


class Stretch:
    """A norm of the whole batch, if there is one, and layers after it that see each utterance by itself."""

    def __init__(self, layer: nn.Module | None, norm: Norm | None, layers: list[nn.Module]) -> None:
        self.layer: Any = layer
        self.norm, self.layers = norm, layers
        self.sums: Sums | None = None

    def normalised(self, x: Tensor) -> Tensor:
        """What the norm makes of some utterances."""
        return x if self.norm is None else normalised(x, self.layer.weight, self.layer.bias, self.norm)

    def value(self, x: Tensor, count: int | None = None) -> Tensor:
        """Of some utterances, by all layers or so many."""
        x = self.normalised(x)
        for layer in self.layers[:count]:
            x = layer(x)
        return x

    @property
    def is_told(self) -> bool:
        """Whether the gradient of the last layer follows from its result."""
        return bool(self.layers) and type(self.layers[-1]) in CLIPS

    def backward(
        self,
        x: Tensor,
        pending: list[Any],
        result: Tensor | None,
        gradients: ParameterGradients,
        *,
        needs_input: bool,
    ) -> Any:
        """Gradient of what the norm makes of some utterances.

        Args:
            pending: gradient of what the last layer makes, which is taken out; not modified.
            result: what it makes; None: unknown.
        """
        upstream = pending.pop()
        if not self.layers:
            return upstream
        values: list[Any] = [self.normalised(x)]
        is_told = result is not None and self.is_told
        for layer in self.layers[: -2 if is_told else -1]:
            values.append(layer(values[-1]))
        if is_told and len(self.layers) > 1:
            values.append(None)
        for position in reversed(range(len(self.layers))):
            value = values.pop()
            wanted = needs_input or position > 0
            upstream = _backward(self.layers[position], value, upstream, result, gradients, needs_input=wanted)
            result = value if position and type(self.layers[position - 1]) in CLIPS else None
        return upstream

    def add_sums(self, x: Tensor, gradient: Tensor) -> None:
        """Of some utterances: what the norm reads, and the gradient of what it makes."""
        if self.norm is not None:
            here = sums_of(x, gradient.to(x.dtype), self.norm)
            self.sums = here if self.sums is None else Sums(*map(torch.add, self.sums, here))

    def input_gradient(self, x: Tensor, gradient: Tensor, place: Tensor | None) -> Tensor:
        """Of what the norm reads, when all sums are known.

        Args:
            x: what it reads.
            gradient: of what it makes.
            place: either of the two, which may be overwritten.
        """
        if self.norm is None:
            return gradient
        assert self.sums is not None
        return input_gradient(x, self.layer.weight, gradient, self.norm, self.sums, place)

    def add_gradients(self, gradients: ParameterGradients) -> None:
        """Of the norm's weight and bias."""
        if self.norm is not None and self.sums is not None:
            gradients.add(self.layer.weight, self.sums.weight)
            gradients.add(self.layer.bias, self.sums.bias)


def cut(layers: Iterable[nn.Module], norms: Iterator[Norm], *, keeps_layers: bool = False) -> list[Stretch]:
    """Before norms, and between convolutions if these are kept; two stretches at least, where there is a layer."""
    found: list[Stretch] = []
    for layer in layers:
        found = found or [Stretch(None, None, [])]
        if is_of_batch(layer):
            found.append(Stretch(layer, next(norms), []))
        elif keeps_layers and found[-1].layers and all(map(_is_convolution, (found[-1].layers[-1], layer))):
            found.append(Stretch(None, None, [layer]))
        else:
            found[-1].layers.append(layer)
    return [*found, Stretch(None, None, [])] if len(found) == 1 else found


def is_of_batch(layer: nn.Module) -> bool:
    """Whether it normalises by the statistics of the batch."""
    return isinstance(layer, KNOWN_NORMS) and (layer.training or layer.running_mean is None)


def _is_convolution(layer: Any) -> bool:
    return type(layer) in (nn.Conv1d, nn.Conv2d) and layer.padding_mode == "zeros" and type(layer.padding) is not str


def _backward(
    layer: nn.Module, x: Tensor, upstream: Tensor, result: Tensor | None, gradients: ParameterGradients,
    *, needs_input: bool,
) -> Any:  # fmt: skip
    if _is_convolution(layer):
        return _of_convolution(layer, x, upstream, gradients, needs_input=needs_input)
    if type(layer) is nn.ReLU and result is not None:
        return torch.ops.aten.threshold_backward(upstream, result, 0)
    if type(layer) is nn.Hardtanh and result is not None:
        return torch.ops.aten.hardtanh_backward(upstream, result, layer.min_val, layer.max_val)
    return recompute_backward(layer, x, upstream, gradients, needs_input=needs_input)


def _of_convolution(
    layer: Any, x: Tensor, upstream: Tensor, gradients: ParameterGradients, *, needs_input: bool
) -> Any:
    wanted = [needs_input, gradients.wants(layer.weight), layer.bias is not None and gradients.wants(layer.bias)]
    dx, weight, bias = torch.ops.aten.convolution_backward(
        upstream, x.to(upstream.dtype), layer.weight.to(upstream.dtype), [layer.out_channels],
        layer.stride, layer.padding, layer.dilation, False, [0] * len(layer.stride), layer.groups, wanted,
    )  # fmt: skip
    gradients.add(layer.weight, weight)
    if layer.bias is not None:
        gradients.add(layer.bias, bias)
    return dx.to(x.dtype) if needs_input else None
