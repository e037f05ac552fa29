"""Batch normalisation whose input is found again from its output and the statistics of the batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.reversible.manual_layers import batch_norm
from svtoolkit.reversible.parts import parts
from svtoolkit.reversible.recomputation import ParameterGradients

FLOOR = 0.1
"""Least gain of a channel: epsilon_i of Hascoet et al. (2023, sec. 4.2.1), 0.1 in their code."""


class Statistics(NamedTuple):
    """What a norm subtracted and divided by, (channels,) each; two numbers a channel are all that is kept.

    Attributes:
        of_batch: they depend on the batch; else they are the running ones of a layer in eval mode.
    """

    mean: Tensor
    deviation: Tensor
    of_batch: bool


class InvertibleBatchNorm2d(nn.BatchNorm2d):
    """y = gain (x - mean) / deviation + bias with gain = |weight| + floor (Hascoet et al. 2023, sec. 4.2.1).

    The floor bounds what the inverse, which divides by the gain, makes of rounding errors. Running statistics are those
    of nn.BatchNorm2d, and move once, in ``forward``. A fresh layer has gain 1.

    Args:
        floor: above 0.
    """

    def __init__(self, channels: int, floor: float = FLOOR) -> None:
        super().__init__(channels)
        if not 0 < floor <= 1:
            raise ValueError(f"norm_floor is {floor}, expected a number above 0, 1 at most")
        self.floor = floor
        nn.init.constant_(self.weight, 1 - floor)

    def gain(self) -> Tensor:
        """(channels,), ``floor`` or more."""
        return self.weight.abs() + self.floor

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, bins, frames) -> the same."""
        value = batch_norm(self, x, self.gain(), self.bias, tracked=self.track_running_stats)
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return value

    def evaluate(self, x: Tensor) -> tuple[Tensor, Statistics]:
        """``forward`` once more: running statistics stay as they are."""
        gain = self.gain()
        if not self.training and self.running_mean is not None:
            assert self.running_var is not None
            mean, variance = self.running_mean, self.running_var
            value = F.batch_norm(x, mean, variance, gain, self.bias, False, 0.0, self.eps)
            return value, Statistics(mean, (variance + self.eps).sqrt_(), of_batch=False)
        # A momentum of 1 hands out the statistics of the batch, of the very kernel of the forward pass.
        mean, variance = torch.zeros_like(gain), torch.ones_like(gain)
        value = F.batch_norm(x, mean, variance, gain, self.bias, True, 1.0, self.eps)
        count = x.numel() // x.shape[1]
        return value, Statistics(mean, variance.mul_((count - 1) / count).add_(self.eps).sqrt_(), of_batch=True)

    def inverse_(self, y: Tensor, statistics: Statistics) -> Tensor:
        """x, in place of y."""
        factor = statistics.deviation / self.gain()
        return _affine(y, factor, statistics.mean - factor * self.bias, out=y)

    def again(self, x: Tensor, statistics: Statistics, out: Tensor, channels: slice = slice(None)) -> Tensor:
        """``forward`` of some channels of x, into ``out``; rounded otherwise."""
        factor = self.gain() / statistics.deviation
        shift = self.bias - factor * statistics.mean
        return _affine(x[:, channels], factor[channels], shift[channels], out=out)

    def gradient_(
        self, y: Tensor, grad_output: Tensor, statistics: Statistics, gradients: ParameterGradients
    ) -> Tensor:
        """Gradient of x, in place of grad_output; those of weight and bias are added to ``gradients``."""
        gain, bias = self.gain(), self.bias
        grad_gain, grad_bias = self._sums(y, grad_output, 1 / gain)
        factor = gain / statistics.deviation
        if statistics.of_batch:
            count = y.numel() // y.shape[1]
            slope = factor * grad_gain / (gain * count)
            _affine(grad_output, factor, slope * bias - factor * grad_bias / count, out=grad_output)
            grad_output.addcmul_(y, _over_maps(-slope))
        else:
            grad_output.mul_(_over_maps(factor))
        gradients.add(self.weight, grad_gain * self.weight.sign())
        gradients.add(self.bias, grad_bias)
        return grad_output

    def _sums(self, y: Tensor, grad_output: Tensor, inverse_gain: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of gain and bias: sums of grad_output (y - bias) / gain, and of grad_output.

        The kernel of BatchNorm's own gradient adds them up without a tensor of the size of y; with bias as the mean
        and 1 / gain as the inverse deviation. What it takes for the gradient of y is that of a part at most.
        """
        sums = [
            torch.ops.aten.native_batch_norm_backward(
                upstream, part, None, None, None, self.bias, inverse_gain, True, self.eps, [False, True, True]
            )[1:]
            for part, upstream in zip(parts(y), parts(grad_output), strict=True)
        ]
        grad_gain, grad_bias = (torch.stack(each).sum(0) for each in zip(*sums, strict=True))
        return grad_gain, grad_bias


def _affine(x: Tensor, factor: Tensor, shift: Tensor, out: Tensor) -> Tensor:
    """factor * x + shift, by channel."""
    return torch.addcmul(_over_maps(shift), x, _over_maps(factor), out=out)


def _over_maps(values: Tensor) -> Tensor:
    """(channels,) -> (1, channels, 1, 1)."""
    return values.view(1, -1, 1, 1)
