"""What is wrong with the overrides of a command line, in one sentence that says what to type instead."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from svtoolkit.composition.conf_files import config_groups
from svtoolkit.composition.keys import did_you_mean, expected, is_text, key_types, options_with
from svtoolkit.errors import UserError

Compose = Callable[[list[str]], Any]


def refuse_unknown(command: str, overrides: Sequence[str]) -> None:
    """Refuse what can be seen without composing: another form than key=value, keys and options there are not.

    Raises:
        UserError: names the override and the nearest valid thing.
    """
    groups, keys = config_groups(command), key_types(command)
    for override in overrides:
        key, equals, value = override.lstrip("+~").partition("=")
        if override.startswith(("+", "~")):
            raise UserError(
                f"svt {command}: found {override!r}, but keys and groups can be neither added nor removed; "
                f"set one with {key or 'key'}={value or 'value'} (`svt {command} --cfg job` shows what there is)"
            )
        if not equals or not key:
            raise UserError(f"svt {command}: found {override!r}, expected key=value; see `svt {command} --help`")
        if key not in groups and key not in keys:
            hint = did_you_mean(key, [*keys, *groups]) or f"`svt {command} --help` lists the keys"
            raise UserError(f"svt {command}: there is no key {key!r}; {hint}")
        if value in ("", "''", '""'):
            wanted = f"one of {', '.join(groups[key])}" if key in groups else expected(keys[key])
            raise UserError(
                f"svt {command}: {key}= has no value, expected {wanted}; "
                "if it came from a shell variable, that is empty"
            )
        if key in groups:
            _refuse_unknown_option(command, key, unquoted(value), groups[key])


def _refuse_unknown_option(command: str, group: str, option: str, options: Sequence[str]) -> None:
    if option not in options:
        near = did_you_mean(option, options)
        hint = f"{near} (all: {', '.join(options)})" if near else f"expected one of {', '.join(options)}, or nothing"
        raise UserError(f"svt {command}: {group} has no option {option!r}; {hint}")


def explain(command: str, error: Exception, overrides: Sequence[str], compose: Compose) -> str:
    """Which override made composing fail, and why: found by composing them one at a time.

    Args:
        error: what composing all of them raised.
        overrides: as refuse_unknown lets them pass.
        compose: overrides -> composed node, raising as for all of them.
    """
    groups, types = config_groups(command), key_types(command)
    choices = [override for override in overrides if override.partition("=")[0] in groups]
    try:
        chosen = compose(choices)
    except Exception as cause:
        return f"svt {command}: {innermost(cause)}"
    for override in (override for override in overrides if override not in choices):
        key, _, value = override.partition("=")
        group, _, name = key.partition(".")
        if options_with(key) and name not in chosen[group]:
            return (
                f"svt {command}: {group}={chosen[group].name} has no key {key!r}, which belongs to "
                f"{', '.join(options_with(key))}; its keys: {', '.join(chosen[group])}"
            )
        try:
            compose([*choices, override])
        except Exception:
            literally = f"; `--{key} VALUE` takes any text literally" if is_text(types[key]) else ""
            return f"svt {command}: {key} is {unquoted(value)!r}, expected {expected(types[key])}{literally}"
    return f"svt {command}: {innermost(error)}"


def unquoted(value: str) -> str:
    """A value without the quotes around it."""
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def innermost(error: BaseException) -> str:
    """The error that all others were raised from, on one line and without OmegaConf's notes on types."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines()]
    told = itertools.takewhile(lambda line: not line.startswith(("full_key:", "object_type=")), lines)
    return " ".join(filter(None, told)) or type(error).__name__
