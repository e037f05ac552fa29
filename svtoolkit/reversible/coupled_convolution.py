"""An invertible convolution: additive coupling of two convolutions on the halves of the channels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from svtoolkit.reversible.manual_layers import Convolution, add_weight_gradient
from svtoolkit.reversible.parts import parts
from svtoolkit.reversible.recomputation import ParameterGradients, autocast_is_on


class CoupledConvolution(nn.Module):
    """y1 = x1 + first(x2), y2 = x2 + second(y1) (Hascoet et al. 2023, sec. 4.2.3): the shape and type stay.

    Half the weights and operations of an ordinary convolution of so many channels, and inverted like a coupling.

    Args:
        channels: 2 or more; of an odd number the first half is the larger.
        kernel_size: odd.
    """

    def __init__(self, channels: int, kernel_size: int = 3) -> None:
        super().__init__()
        if channels < 2:
            raise ValueError(f"a coupled convolution needs 2 channels or more, and has {channels}")
        narrow, wide = channels // 2, channels - channels // 2
        padding = kernel_size // 2
        self.first = nn.Conv2d(narrow, wide, kernel_size, padding=padding, bias=False)
        self.second = nn.Conv2d(wide, narrow, kernel_size, padding=padding, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, bins, frames) -> the same."""
        x1, x2 = x.tensor_split(2, dim=1)
        y1 = x1 + self.first(x2).to(x.dtype)
        return torch.cat([y1, x2 + self.second(y1).to(x.dtype)], dim=1)

    def evaluate_(self, x: Tensor) -> Tensor:
        """``forward``, in place of x."""
        x1, x2 = x.tensor_split(2, dim=1)
        x1.add_(Convolution(self.first)(x2))
        x2.add_(Convolution(self.second)(x1))
        return x

    def inverse_(self, y: Tensor) -> Tensor:
        """x2 = y2 - second(y1), x1 = y1 - first(x2), in place of y."""
        y1, y2 = y.tensor_split(2, dim=1)
        _subtract(self.second, y1, y2)
        _subtract(self.first, y2, y1)
        return y

    def undo_(
        self,
        y: Tensor,
        grad_output: Tensor,
        gradients: ParameterGradients,
        refill: Callable[[Tensor, slice], object] | None = None,
    ) -> None:
        """Turn the result and its gradient into those of the input, in place.

        Args:
            refill: writes channels of the input into a tensor, where it is known otherwise; None: it is inverted.
        """
        y1, y2 = y.tensor_split(2, dim=1)
        d1, d2 = grad_output.tensor_split(2, dim=1)
        border = slice(0, y1.shape[1]), slice(y1.shape[1], None)
        for layer, source, target, upstream, downstream, channels in (
            (self.second, y1, y2, d2, d1, border[1]),
            (self.first, y2, y1, d1, d2, border[0]),
        ):
            _add_gradient(layer, source, upstream, downstream, gradients)
            if refill is None:
                _subtract(layer, source, target)
            else:
                refill(target, channels)


def _subtract(layer: nn.Conv2d, source: Tensor, target: Tensor) -> None:
    convolution = Convolution(layer)
    for part, reduced in zip(parts(source), parts(target), strict=True):
        reduced.sub_(convolution(part))


def _add_gradient(
    layer: nn.Conv2d, x: Tensor, grad_output: Tensor, downstream: Tensor, gradients: ParameterGradients
) -> None:
    """Gradient of layer(x): for the weight to ``gradients``, for x to ``downstream``."""
    convolution, precision = Convolution(layer), precision_of(grad_output)
    add_weight_gradient(layer, x, grad_output.to(precision), gradients)
    for part, upstream, increased in zip(parts(x), parts(grad_output), parts(downstream), strict=True):
        increased.add_(convolution.input_gradient(part, upstream.to(precision)))


def precision_of(x: Tensor) -> torch.dtype:
    """In which a convolution of x is computed."""
    return torch.get_autocast_dtype(x.device.type) if autocast_is_on(x.device) else x.dtype
