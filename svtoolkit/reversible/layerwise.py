"""Residual functions that backward inverts layer by layer, with no more than the tensors of one layer at a time.

The function is evaluated once more without keeping anything, from the input that the coupling has recovered; what it
gives is subtracted from the stream. Then the result goes back through the inverse of each layer, in place, beside its
gradient (Hascoet et al. 2023, sec. 4.4, "Hybrid architecture"): numerical errors do not leave the function, since the
couplings around it recover their streams otherwise. Two things are known without inversion, and taken as they are:
norm and activation at the head are evaluated again from the input, and what an ordinary convolution reads is kept.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.reversible.coupled_convolution import CoupledConvolution, precision_of
from svtoolkit.reversible.invertible_activation import InvertibleLeakyReLU
from svtoolkit.reversible.invertible_norm import InvertibleBatchNorm2d, Statistics
from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.manual_layers import Convolution, add_weight_gradient, has_hooks, is_plain
from svtoolkit.reversible.parts import parts
from svtoolkit.reversible.recomputation import ParameterGradients

LAYERS = (InvertibleBatchNorm2d, InvertibleLeakyReLU, CoupledConvolution)

HEAD = 2
"""Layers before the first convolution: norm and activation."""


class LayerwiseFunction(nn.Sequential):
    """Norm, activation, convolution, again and again; autograd differentiates it as any other module.

    Args:
        layers: ``InvertibleBatchNorm2d``, ``InvertibleLeakyReLU`` and a convolution, in this order, once or several
            times; a ``CoupledConvolution`` is inverted, the input of an ``nn.Conv2d`` kept.

    Attributes:
        layerwise: ``recompute_backward`` inverts layer by layer; else autograd differentiates a second evaluation.
    """

    def __init__(self, *layers: nn.Module) -> None:
        expected = (InvertibleBatchNorm2d, InvertibleLeakyReLU, (CoupledConvolution, nn.Conv2d))
        if not layers or len(layers) % 3 or not all(isinstance(e, expected[i % 3]) for i, e in enumerate(layers)):
            raise TypeError(
                "a layerwise function is made of invertible norm, leaky ReLU and convolution, in this order"
            )
        super().__init__(*layers)
        self.layerwise = False

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, bins, frames) -> the same, of the type of x, under autocast too: what a convolution in half
        precision gives is normalised and inverted in float32. Without gradient, coupled convolutions work in place.
        """
        # A graph that is traced for export has no views to write through.
        in_place = not torch.is_grad_enabled() and not torch.jit.is_tracing() and self._is_plain()
        value = x
        for layer in self:
            if in_place and isinstance(layer, CoupledConvolution):
                value = layer.evaluate_(value)
            else:
                value = layer(value).to(x.dtype)
        return value

    def is_as_built(self) -> bool:
        """Whether it is to be inverted layer by layer, and can be: hooks and sub-classes are for autograd."""
        return self.layerwise and not has_hooks(self) and self._is_plain()

    def _is_plain(self) -> bool:
        convolutions = [layer for layer in self.modules() if isinstance(layer, nn.Conv2d)]
        return (
            not has_hooks(*self)
            and is_plain(*convolutions)
            and all(type(layer) in LAYERS for layer in self if layer not in convolutions)
        )

    def evaluate(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Value, and of each layer what its inversion needs: statistics of a norm, input of an ordinary convolution.

        x itself is not modified. Running statistics stay as they are.
        """
        notes: list[Any] = []
        value = x
        for position, layer in enumerate(self):
            note: Any = None
            if isinstance(layer, InvertibleBatchNorm2d):
                value, note = layer.evaluate(value)
            elif isinstance(layer, CoupledConvolution):
                value = layer.evaluate_(value)
            elif isinstance(layer, nn.Conv2d):
                note = value if position > HEAD else None
                value = Convolution(layer)(value).to(x.dtype)
            else:
                value = layer(value)
            notes.append(note)
        return value, notes

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor:
        """Beside x and grad_output: value and gradient of the layer in hand, each of the size of x."""
        gradients = request.gradients
        value, notes = self.evaluate(x)
        is_inverted = isinstance(self[-1], CoupledConvolution)
        if request.value_hook is not None:
            request.value_hook(value.clone() if is_inverted else value)
        gradient = grad_output.to(x.dtype, copy=True) if is_inverted else grad_output
        for position in range(len(self) - 1, HEAD, -1):
            layer, note = self[position], notes.pop()
            if isinstance(layer, CoupledConvolution):
                layer.undo_(value, gradient, gradients)
            elif isinstance(layer, nn.Conv2d):
                value, is_own = note, gradient is not grad_output
                gradient = _convolution_gradient(layer, value, gradient, gradients, is_own=is_own)
            elif isinstance(layer, InvertibleBatchNorm2d):
                layer.gradient_(value, gradient, note, gradients)
                if isinstance(self[position - 1], CoupledConvolution):  # an ordinary one does not ask for its result
                    layer.inverse_(value, note)
            else:
                assert isinstance(layer, InvertibleLeakyReLU)
                layer.gradient_(value, gradient)
                layer.inverse_(value)
            del note
        return self._through_head(x, value, gradient, gradients, notes[0], is_own=gradient is not grad_output)

    def _through_head(
        self,
        x: Tensor,
        value: Tensor,
        gradient: Tensor,
        gradients: ParameterGradients,
        statistics: Statistics,
        *,
        is_own: bool,
    ) -> Tensor:
        """The first convolution, and what is before it, which is known from x; ``value`` is overwritten."""
        norm, activation, convolution = self[0], self[1], self[2]
        assert isinstance(norm, InvertibleBatchNorm2d)
        assert isinstance(activation, InvertibleLeakyReLU)
        refill = partial(_evaluate_head, norm, activation, x, statistics)
        if isinstance(convolution, CoupledConvolution):
            convolution.undo_(value, gradient, gradients, refill)
        else:
            assert isinstance(convolution, nn.Conv2d)
            if value.shape != x.shape:
                value = torch.empty_like(x)
            refill(value)
            gradient = _convolution_gradient(convolution, value, gradient, gradients, is_own=is_own)
        activation.gradient_(value, gradient)
        activation.inverse_(value)
        return norm.gradient_(value, gradient, statistics, gradients)


def _evaluate_head(
    norm: InvertibleBatchNorm2d,
    activation: InvertibleLeakyReLU,
    x: Tensor,
    statistics: Statistics,
    out: Tensor,
    channels: slice = slice(None),
) -> None:
    activation(norm.again(x, statistics, out, channels))


def _convolution_gradient(
    layer: nn.Conv2d, x: Tensor, grad_output: Tensor, gradients: ParameterGradients, *, is_own: bool
) -> Tensor:
    """Gradient of layer(x) for x, of its type; in place of grad_output where that may be (``is_own``) and has room."""
    convolution, precision = Convolution(layer), precision_of(grad_output)
    add_weight_gradient(layer, x, grad_output.to(precision), gradients)
    if not is_own or x.shape != grad_output.shape:
        return convolution.input_gradient(x, grad_output.to(precision))
    for part, upstream in zip(parts(x), parts(grad_output), strict=True):
        upstream.copy_(convolution.input_gradient(part, upstream.to(precision)))
    return grad_output
