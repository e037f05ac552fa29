"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from svtoolkit.errors import UserError


def build_optimizer(parameters: Iterable[nn.Parameter], name: str, **settings: Any) -> torch.optim.Optimizer:
    """Build an optimizer over one parameter group.

    Args:
        parameters: trainable parameters.
        name: sgd or adamw.
        settings: sgd: lr, weight_decay, momentum, nesterov; adamw: lr, weight_decay, beta1, beta2, eps.

    Raises:
        UserError: unknown name, or a setting that the optimizer refuses.
    """
    try:
        if name == "sgd":
            return torch.optim.SGD(parameters, **settings)
        if name == "adamw":
            betas = (settings.pop("beta1"), settings.pop("beta2"))
            return torch.optim.AdamW(parameters, betas=betas, **settings)
    except ValueError as error:
        raise UserError(f"optim={name}: {error}; see conf/optim/{name}.yaml") from error
    raise UserError(f"there is no optimizer {name!r}; expected sgd or adamw")
