"""Leaky ReLU, whose input is found again from its output."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.1
"""Of negative values."""


class InvertibleLeakyReLU(nn.Module):
    """x where it is positive, slope * x elsewhere (Hascoet et al. 2023, sec. 4.2.2).

    Args:
        slope: n of the paper: near 0, inversion multiplies noise by 1 / n; at 1, nothing is non-linear.
    """

    def __init__(self, slope: float = SLOPE) -> None:
        super().__init__()
        if not 0 < slope <= 1:
            raise ValueError(f"slope is {slope}, expected a number above 0, 1 at most")
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        """In place, of any shape: autograd keeps the result, as it does of a ReLU."""
        return F.leaky_relu(x, self.slope, inplace=True)

    def inverse_(self, y: Tensor) -> Tensor:
        """x, in place of y."""
        return F.leaky_relu(y, 1 / self.slope, inplace=True)

    def gradient_(self, y: Tensor, grad_output: Tensor) -> Tensor:
        """Gradient of x, in place of grad_output; y has the signs of x."""
        return torch.ops.aten.leaky_relu_backward.grad_input(grad_output, y, self.slope, True, grad_input=grad_output)
