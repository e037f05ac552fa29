"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from svtoolkit.config import OptimConfig
from svtoolkit.errors import UserError
from svtoolkit.optim.by_import_path import find_class, settings_of, to_arguments
from svtoolkit.optim.muon import MuonGroups
from svtoolkit.optim.registry import OPTIMIZERS
from svtoolkit.registry import check_settings, defaults


def build_optimizer(parameters: Iterable[nn.Parameter], name: str, **settings: Any) -> torch.optim.Optimizer:
    """Build an optimizer over one parameter group.

    Args:
        parameters: trainable parameters.
        name: a name of ``OPTIMIZERS``, whose settings have all to be given, or the import path of a class, such as
            torch.optim.NAdam, whose keyword arguments have its own defaults.
        settings: the fields of its settings.

    Raises:
        UserError: unknown name, an unknown or missing setting, or one that the optimizer or its backend refuses.
    """
    has_row = name in OPTIMIZERS or not (isinstance(name, str) and "." in name)
    schema = (OPTIMIZERS[name].settings or OptimConfig) if has_row else settings_of(name)
    check_settings(f"optim={name}", schema, settings)
    given = settings if has_row else {**defaults(schema), **settings}
    for key in [item.name for item in fields(schema) if item.name != "name"]:
        if key not in given:
            raise UserError(f"optim={name}: {key} is not given; expected a value for optim.{key}")
    try:
        if has_row:
            optimizer = OPTIMIZERS.load(name)(parameters, **given, **OPTIMIZERS[name].arguments)
        else:
            optimizer = find_class(name)(parameters, **to_arguments(name, given))
    except (ValueError, NotImplementedError, TypeError) as error:
        if isinstance(error, TypeError) and has_row and name in OPTIMIZERS.rows:
            raise
        raise UserError(f"optim={name}: {error}; see docs/settings.md") from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UserError(f"optim={name} makes a {type(optimizer).__name__}, expected a torch.optim.Optimizer")
    return optimizer


def exempt_from_decay(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Give parameters of a group a group without weight decay, before that of the others."""
    exempt = list(parameters)
    numbers = {id(parameter) for parameter in exempt}
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        own = {id(parameter) for parameter in group["params"]}
        apart = [parameter for parameter in exempt if id(parameter) in own]
        rest = [parameter for parameter in group["params"] if id(parameter) not in numbers]
        groups += [{**group, "params": apart, "weight_decay": 0.0}] if apart else []
        groups.append({**group, "params": rest})
    optimizer.param_groups = groups


def leave_to_adamw(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Tell Muon which matrices are not of a hidden layer; other optimizers treat all parameters alike."""
    if isinstance(optimizer, MuonGroups):
        optimizer.leave_to_adamw(parameters)


def build_adamw(
    parameters: Iterable[nn.Parameter], *, beta1: float, beta2: float, **settings: Any
) -> torch.optim.Optimizer:
    """torch's AdamW with a key for each of its betas."""
    return torch.optim.AdamW(parameters, betas=(beta1, beta2), **settings)
