"""SGD and AdamW as torch.optim has them, with the state of ``EightBitOptimizer``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from svtoolkit.optim.eight_bit_optimizer import EightBitOptimizer
from svtoolkit.optim.moments import Moment


class SGD8bit(EightBitOptimizer):
    """torch.optim.SGD (without dampening) with a momentum buffer of one byte a value: moment ``momentum``.

    Args:
        params: parameters, or groups of them with settings of their own.
        lr: learning rate.
        momentum: share of the last update that is kept; 0: there is no state.
        weight_decay: L2, added to the gradient.
        nesterov: step by the gradient plus momentum times the new buffer, instead of by the new buffer.
        block_size: values that share a scale, 1 to 2^20; 2048 as Liu & Qian, 256 as bitsandbytes.
        min_8bit_size: parameters with fewer values keep float32 state.

    Raises:
        ValueError: a setting makes no sense.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        block_size: int = 2048,
        min_8bit_size: int = 4096,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, {**defaults, "block_size": block_size, "min_8bit_size": min_8bit_size})

    def check(self, settings: Mapping[str, Any]) -> None:
        super().check(settings)
        if not settings["momentum"] >= 0.0:
            raise ValueError(f"Invalid momentum value: {settings['momentum']}")
        if settings["nesterov"] and settings["momentum"] == 0:
            raise ValueError("Nesterov momentum requires a momentum")

    def moments(self, group: Mapping[str, Any]) -> tuple[Moment, ...]:
        return (Moment("momentum", signed=True),) if group["momentum"] else ()

    def update(
        self, group: Mapping[str, Any], steps: int, parameter: Tensor, gradient: Tensor, moments: list[Tensor]
    ) -> None:
        """Sutskever et al. (ICML 2013) as torch writes it: the buffer begins at 0, so it becomes the first gradient."""
        if group["weight_decay"]:
            gradient.add_(parameter, alpha=group["weight_decay"])
        if moments:
            (buffer,) = moments
            buffer.mul_(group["momentum"]).add_(gradient)
            gradient = gradient.add_(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        parameter.add_(gradient, alpha=-float(group["lr"]))


class AdamW8bit(EightBitOptimizer):
    """torch.optim.AdamW with moments of one byte a value: ``exp_avg`` and ``exp_avg_sq``, and ``step``.

    No step is larger than the moments of any gradients allow, (1 - beta1) / sqrt((1 - beta2) (1 - beta1^2 / beta2))
    times the rate before bias correction, even where the second moment was too small for its code.

    Args:
        params: parameters, or groups of them with settings of their own.
        lr: learning rate.
        betas: decay of the first and of the second moment.
        eps: added to the root of the second moment.
        weight_decay: decoupled, that is, relative to the parameter and not part of the moments.
        block_size, min_8bit_size: as for ``SGD8bit``.

    Raises:
        ValueError: a setting makes no sense.
    """

    counts_steps = True

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        block_size: int = 2048,
        min_8bit_size: int = 4096,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "block_size": block_size, "min_8bit_size": min_8bit_size})

    def check(self, settings: Mapping[str, Any]) -> None:
        super().check(settings)
        if not settings["eps"] >= 0.0:
            raise ValueError(f"Invalid epsilon value: {settings['eps']}")
        for index, beta in enumerate(settings["betas"]):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")

    def moments(self, group: Mapping[str, Any]) -> tuple[Moment, ...]:
        return Moment("exp_avg", signed=True), Moment("exp_avg_sq", signed=False)

    def update(
        self, group: Mapping[str, Any], steps: int, parameter: Tensor, gradient: Tensor, moments: list[Tensor]
    ) -> None:
        """Loshchilov & Hutter (ICLR 2019), algorithm 2."""
        (beta1, beta2), (first, second) = group["betas"], moments
        parameter.mul_(1 - float(group["lr"]) * group["weight_decay"])
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = torch.sqrt(second, out=gradient)
        if beta1**2 < beta2:
            # By Cauchy-Schwarz |first| <= bound * sqrt(second), but for a second moment that was rounded to 0: without
            # a gradient to refill it, the step would be first / eps, a thousand times the learning rate.
            bound = (1 - beta1) / math.sqrt((1 - beta2) * (1 - beta1**2 / beta2))
            torch.maximum(root, first.abs().div_(bound), out=root)
        root.div_(math.sqrt(1 - beta2**steps)).add_(group["eps"])
        parameter.addcdiv_(first, root, value=-float(group["lr"]) / (1 - beta1**steps))
