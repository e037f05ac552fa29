"""Optimizers of torch.optim, or of any installed package, by the import path of their class.

What can be set is read from the signature of the class: its keyword arguments, with their types and defaults.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import types
import typing
from typing import Any

import torch

from svtoolkit.config import REQUIRED, OptimConfig
from svtoolkit.errors import UserError
from svtoolkit.registry import nearest


@functools.cache
def settings_of(name: str) -> type[OptimConfig]:
    """A dataclass of what can be set of an optimizer.

    Args:
        name: import path of its class, such as torch.optim.NAdam or bitsandbytes.optim.Lion8bit.

    Returns:
        a subclass of OptimConfig: name, lr, weight_decay (0 where the class has none), and those keyword arguments of
        the class whose values are numbers, words, true or false, or lists of numbers, with its defaults.

    Raises:
        UserError: there is no such class, or it does not optimize by a plain ``step()`` with a learning rate.
    """
    optimizer = find_class(name)
    hints = _type_hints(optimizer)
    found: list[Any] = [("name", str, name)]
    for key, parameter in _arguments(optimizer).items():
        hint = _field_type(hints.get(key), parameter.default)
        if hint is None:
            continue
        default = parameter.default
        if default is inspect.Parameter.empty:
            default = REQUIRED
        elif isinstance(default, list | tuple):
            default = dataclasses.field(default_factory=functools.partial(list, default))
        elif hint is float and default is not None:
            default = float(default)
        found.append((key, hint, default))
    schema = dataclasses.make_dataclass(f"{optimizer.__name__}Config", found, bases=(OptimConfig,))
    schema.__reduce__ = _reduce  # type: ignore[method-assign,assignment]
    return schema


def find_class(name: str) -> type[torch.optim.Optimizer]:
    """The class behind an import path.

    Raises:
        UserError: as for ``settings_of``.
    """
    path, _, attribute = name.rpartition(".")
    try:
        module = importlib.import_module(path)
    except Exception as error:
        raise UserError(
            f"optim={name}: {path} cannot be imported ({type(error).__name__}: {error}); install the package, or "
            "correct its name"
        ) from error
    classes = [key for key, value in vars(module).items() if _is_optimizer(value)]
    found = getattr(module, attribute, None)
    if found is None:
        raise UserError(
            f"optim={name}: {path} has no {attribute!r}; {nearest(attribute, classes)}"
            f"(its optimizers: {', '.join(sorted(classes)) or 'none'})"
        )
    reason = _obstacle(found)
    if reason:
        raise UserError(f"optim={name} {reason}; choose another optimizer")
    return typing.cast("type[torch.optim.Optimizer]", found)


def to_arguments(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as the class takes them: tuples where its defaults are, whole numbers where it has them.

    Raises:
        UserError: a weight decay for a class that has none.
    """
    parameters = _arguments(find_class(name))
    arguments: dict[str, Any] = {}
    for key, value in settings.items():
        if key == "weight_decay" and key not in parameters:
            if value:
                raise UserError(f"optim={name} has no weight decay, found {value}; use optim.weight_decay=0")
            continue
        default = parameters[key].default
        if isinstance(default, tuple):
            value = tuple(value)
        elif type(default) is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        arguments[key] = value
    return arguments


def _reduce(settings: OptimConfig) -> tuple[Any, ...]:
    """For pickle: a class that no module holds is made again from its name, in a process that trains along."""
    return _restore, (settings.name, dataclasses.asdict(settings))


def _restore(name: str, values: dict[str, Any]) -> OptimConfig:
    return settings_of(name)(**values)


def _is_optimizer(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer


def _obstacle(found: Any) -> str | None:
    """What keeps something from being an optimizer of a training step."""
    if not _is_optimizer(found):
        return "is no optimizer: expected a subclass of torch.optim.Optimizer"
    closure = inspect.signature(found.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        return "evaluates the loss several times a step (its step() needs a closure), and a training step does so once"
    if issubclass(found, torch.optim.SparseAdam):
        return "takes sparse gradients alone, and those of the networks here are dense"
    if "lr" not in _arguments(found):
        return "has no lr, which the learning-rate schedule sets"
    return None


def _arguments(optimizer: type[Any]) -> dict[str, inspect.Parameter]:
    """Arguments that can be given by keyword, but for the parameters to optimize, which come first."""
    parameters = list(inspect.signature(optimizer).parameters.values())[1:]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name: parameter for parameter in parameters if parameter.kind in kinds}


def _type_hints(optimizer: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(optimizer.__init__)
    except (NameError, TypeError):  # names that are imported for type checkers alone
        return {}


def _field_type(hint: Any, default: Any) -> Any:
    """Type of a setting, one that YAML and the command line can write; None: there is none."""
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if isinstance(default, list | tuple):
        if not all(item is None or isinstance(item, int | float) for item in default):
            return None
        return list[float | None] if None in default else list[float]
    plain = next((kind for kind in (bool, float, int, str) if kind in members), None)
    if plain is None and typing.get_origin(hint) is typing.Literal:
        plain = type(typing.get_args(hint)[0])
    if plain is None and isinstance(default, bool | int | float | str):
        plain = float if type(default) is int else type(default)
    if plain is None:
        return None
    return plain | None if default is None or types.NoneType in members else plain
