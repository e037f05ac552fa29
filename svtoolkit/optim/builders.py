"""Optimizers by name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.optim.backends import build_eight_bit

SGD = ("lr", "weight_decay", "momentum", "nesterov")
ADAMW = ("lr", "weight_decay", "beta1", "beta2", "eps")
EIGHT_BIT = ("block_size", "min_8bit_size", "backend")

SETTINGS = {"sgd": SGD, "adamw": ADAMW, "sgd_8bit": SGD + EIGHT_BIT, "adamw_8bit": ADAMW + EIGHT_BIT}
"""Name -> what has to be given."""


def build_optimizer(parameters: Iterable[nn.Parameter], name: str, **settings: Any) -> torch.optim.Optimizer:
    """Build an optimizer over one parameter group.

    Args:
        parameters: trainable parameters.
        name: sgd, adamw, sgd_8bit or adamw_8bit.
        settings: all of ``SETTINGS[name]``.

    Raises:
        UserError: unknown name, an unknown or missing setting, or one that the optimizer or its backend refuses.
    """
    _check_settings(name, settings)
    if "beta1" in settings:
        settings["betas"] = (settings.pop("beta1"), settings.pop("beta2"))
    try:
        if "backend" in settings:
            return build_eight_bit(list(parameters), name, settings.pop("backend"), settings)
        return (torch.optim.SGD if name == "sgd" else torch.optim.AdamW)(parameters, **settings)
    except ValueError as error:
        raise UserError(f"optim={name}: {error}; see docs/settings.md") from error


def _check_settings(name: str, settings: dict[str, Any]) -> None:
    if name not in SETTINGS:
        raise UserError(f"there is no optimizer {name!r}; expected one of {', '.join(SETTINGS)}")
    known = ", ".join(SETTINGS[name])
    for key in settings:
        if key not in SETTINGS[name]:
            raise UserError(f"optim={name} has no setting {key!r}; it has {known}")
    for key in SETTINGS[name]:
        if key not in settings:
            raise UserError(f"optim={name}: {key} is not given; it has {known}")
        value = settings[key]
        if key != "backend" and (not isinstance(value, (int, float)) or not math.isfinite(value)):
            raise UserError(f"optim={name}: {key} is {value!r}, expected a finite number; see docs/settings.md")
