"""Optimizers by name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from svtoolkit.errors import UserError

SETTINGS = {
    "sgd": ("lr", "weight_decay", "momentum", "nesterov"),
    "adamw": ("lr", "weight_decay", "beta1", "beta2", "eps"),
}


def build_optimizer(parameters: Iterable[nn.Parameter], name: str, **settings: Any) -> torch.optim.Optimizer:
    """Build an optimizer over one parameter group.

    Args:
        parameters: trainable parameters.
        name: sgd or adamw.
        settings: all of ``SETTINGS[name]``.

    Raises:
        UserError: unknown name, an unknown or missing setting, or one that the optimizer refuses.
    """
    if name not in SETTINGS:
        raise UserError(f"there is no optimizer {name!r}; expected {' or '.join(SETTINGS)}")
    known = ", ".join(SETTINGS[name])
    for key in settings:
        if key not in SETTINGS[name]:
            raise UserError(f"optim={name} has no setting {key!r}; it has {known}")
    for key in SETTINGS[name]:
        if key not in settings:
            raise UserError(f"optim={name}: {key} is not given; it has {known}")
        value = settings[key]
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UserError(f"optim={name}: {key} is {value!r}, expected a finite number; see conf/optim/{name}.yaml")
    try:
        if name == "sgd":
            return torch.optim.SGD(parameters, **settings)
        betas = (settings.pop("beta1"), settings.pop("beta2"))
        return torch.optim.AdamW(parameters, betas=betas, **settings)
    except ValueError as error:
        raise UserError(f"optim={name}: {error}; see conf/optim/{name}.yaml") from error
