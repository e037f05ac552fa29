"""Keys of the schema, what they mean, and the nearest of them to a word that is none; needs neither Hydra nor torch."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from svtoolkit.composition.groups import GROUPS, group_classes, is_import_path, listed_schemas
from svtoolkit.config import COMMANDS

EXPECTED = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list[str]": "a list such as [a,b]",
    "list[int]": "a list of whole numbers such as [3,7]",
    "list[float]": "a list of numbers such as [1.0,0.9]",
    "list[Any]": "a list of lists such as [[1,2],[2,2]]",
    "dict[str, Any]": "names and settings such as {clipping:{probability:0.3}}",
}
"""Annotation in the schema -> what to call it in a message."""


class Entry(NamedTuple):
    """A key or a group: its dotted name, its default as YAML writes it, and what it is for."""

    name: str
    default: str
    text: str


def described_keys(command: str) -> list[Entry]:
    """All keys of a command with the options that it has by default: its own first, then group by group."""
    groups = group_classes(command)
    described = [entry for entry in described_settings(COMMANDS[command].settings) if entry.name not in groups]
    for group, schema in groups.items():
        described += described_settings(schema, f"{group}.")
    return described


def described_settings(schema: type[Any], prefix: str = "") -> list[Entry]:
    """The keys of one dataclass."""
    return [
        Entry(prefix + item.name, _as_yaml(_default(item)), item.metadata.get("help", "")) for item in fields(schema)
    ]


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def _as_yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, float) or value.is_integer():
        return str(value)
    digits, exponent, power = f"{value:.6g}".partition("e")
    return digits + (".0" if exponent and "." not in digits else "") + exponent + power  # 1e-07 is a text of YAML


def key_types(command: str, by_path: Collection[tuple[str, str]] = ()) -> dict[str, str]:
    """Every dotted key of a command -> its annotation in the schema, whatever options its groups have chosen.

    Args:
        by_path: groups and the options chosen in them by import path, which no list has.

    Raises:
        UserError: nothing is at such a path.
    """
    groups = group_classes(command)
    types: dict[str, str] = {}
    for item in fields(COMMANDS[command].settings):
        if item.name not in groups:
            types[item.name] = _annotation(item.type)
            continue
        further = [type(GROUPS[group][option].settings) for group, option in by_path if group == item.name]
        for schema in [groups[item.name], *listed_schemas(item.name).values(), *further]:
            types |= {f"{item.name}.{key.name}": _annotation(key.type) for key in fields(schema)}
    return types


def options_by_path(words: Iterable[str]) -> set[tuple[str, str]]:
    """Of words such as optim=torch.optim.NAdam: the group and the import path."""
    pairs = (word.lstrip("-").partition("=") for word in words)
    chosen = ((group, path.strip("'\"")) for group, _, path in pairs)
    return {(group, path) for group, path in chosen if takes_paths(group) and is_import_path(path)}


def takes_paths(group: str) -> bool:
    """Whether options of a group can be chosen by import path."""
    return getattr(GROUPS.get(group), "by_path", None) is not None


def _annotation(hint: Any) -> str:
    """As the schema spells it: `float`, `list[float]`, `int | None`."""
    return hint if isinstance(hint, str) else getattr(hint, "__name__", "") if type(hint) is type else str(hint)


def is_list(annotation: str) -> bool:
    return annotation.startswith("list[")


def is_list_of_texts(annotation: str) -> bool:
    return annotation == "list[str]"


def is_text(annotation: str) -> bool:
    return annotation.removesuffix(" | None") == "str"


def expected(annotation: str) -> str:
    """What a value of this annotation looks like, in words."""
    plain = annotation.removesuffix(" | None")
    words = EXPECTED.get(plain, f"a value of type {plain}")
    return f"{words} or null" if plain != annotation else words


def options_with(key: str) -> list[str]:
    """Choices such as `optim=sgd` whose settings have a dotted key that other options of the group lack."""
    group, _, name = key.partition(".")
    schemas = listed_schemas(group)
    having = [option for option, schema in schemas.items() if name in {item.name for item in fields(schema)}]
    return [] if len(having) == len(schemas) else [f"{group}={option}" for option in having]


def did_you_mean(word: str, candidates: Sequence[str]) -> str:
    """`did you mean ...?`, comparing last components too, so that lrr finds optim.lr; empty where nothing is near."""
    ends = {candidate.rpartition(".")[2]: candidate for candidate in reversed(candidates)}
    end = word.rpartition(".")[2]
    if end in ends:
        return f"did you mean {ends[end]!r}?"
    near = (
        difflib.get_close_matches(word, candidates, n=1, cutoff=0.7)
        or [ends[close] for close in difflib.get_close_matches(end, ends, n=1, cutoff=0.7)]
        or difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    )
    return f"did you mean {near[0]!r}?" if near else ""
