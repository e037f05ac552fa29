"""Words of a command line that mean what they say: its settings without a grammar, which takes a third of a second.

Anything else, quotes, interpolations, lists in brackets, options, a mistake, is left to ``svtoolkit.composition``,
which composes the same settings of what is read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from svtoolkit.config.command_table import COMMANDS
from svtoolkit.config.limits import check_limits
from svtoolkit.config.setting import REQUIRED

WHOLE = "-?(0|[1-9][0-9]{0,15})"
READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "str": (r"[\w./:@+%=-]+", str),
    "list[str]": (r"[\w./:@+%=-]+", lambda text: [text]),
    "int": (WHOLE, int),
    "float": (rf"{WHOLE}(\.[0-9]{{1,15}})?", float),
    "bool": ("true|false", lambda text: text == "true"),
}
"""Annotation of a setting -> what a value looks like that needs no grammar, and what it is read by."""


def plain_settings(command: str, words: Sequence[str]) -> Any | None:
    """The settings of a command; None: they have to be composed.

    Raises:
        UserError: a number is beyond its limits.
    """
    items = {item.name: item for item in fields(COMMANDS[command].settings)}
    if any(word.startswith(("-", "~")) for word in words) or any(
        isinstance(item.default_factory, type) for item in items.values()
    ):
        return None  # options, or groups to choose from
    pairs = [word.split("=", 1) for word in words if "=" in word]
    named = dict(pairs)
    placed = _placed(command, [word for word in words if "=" not in word], named)
    if placed is None or len(named) < len(pairs) or not named.keys() <= items.keys():
        return None
    values: dict[str, Any] = {}
    for key, text in [*named.items(), *((key, text) for key, texts in placed.items() for text in texts)]:
        kind, _, optional = str(items[key].type).partition(" | ")
        if optional == "None" and text == "null" and key in named:
            values[key] = None
            continue
        if kind not in READ or text == "null" or not re.fullmatch(READ[kind][0], text):
            return None
        value = READ[kind][1](text)
        values[key] = [*values[key], *value] if key in values else value
    if any(item.default == REQUIRED and key not in values for key, item in items.items()):
        return None
    settings = COMMANDS[command].settings(**values)
    check_limits(settings)
    return settings


def _placed(command: str, texts: list[str], named: dict[str, str]) -> dict[str, list[str]] | None:
    """Words without ``=`` by the key whose place they take; a list takes all but one for each place after it."""
    places = COMMANDS[command].positional
    if texts and (not places or places[0] in named):
        return None
    kinds = {item.name: str(item.type) for item in fields(COMMANDS[command].settings)}
    left = [key for key in places if key not in named]
    placed: dict[str, list[str]] = {}
    while texts and left:
        key = left.pop(0)
        taken = max(1, len(texts) - len(left)) if kinds[key].startswith("list[") else 1
        placed[key], texts = texts[:taken], texts[taken:]
    return None if texts else placed
