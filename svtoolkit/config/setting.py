"""A key of the configuration: its default, its type and its help stand in one place, the field of a dataclass."""

from __future__ import annotations

from dataclasses import field
from typing import Any

REQUIRED = "???"
"""Marks a key without a default: nothing runs until it is given."""


def setting(default: Any, help: str, *, by_name: bool = False) -> Any:
    """The field of a dataclass with what `svt <command> --help` and docs/settings.md say of it.

    Args:
        default: a value; of a node, the class that it is an object of; REQUIRED: it has to be given.
        help: meaning, unit, and what null stands for.
        by_name: whether Python gives it by its name alone.
    """
    metadata = {"help": help}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata, kw_only=by_name)
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata, kw_only=by_name)
    return field(default=default, metadata=metadata, kw_only=by_name)
