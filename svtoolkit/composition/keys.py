"""Keys of the schema, what they mean, and the nearest of them to a word that is none; needs neither Hydra nor torch."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from svtoolkit.composition.groups import GROUPS, group_classes
from svtoolkit.config import SCHEMAS

EXPECTED = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list[str]": "a list such as [a,b]",
    "list[int]": "a list of whole numbers such as [3,7]",
    "list[float]": "a list of numbers such as [1.0,0.9]",
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
    own = [item for item in fields(SCHEMAS[command]) if item.name not in groups]
    described = [Entry(item.name, _as_yaml(_default(item)), item.metadata["help"]) for item in own]
    for group, schema in groups.items():
        described += described_settings(schema, f"{group}.")
    return described


def described_settings(schema: type[Any], prefix: str = "") -> list[Entry]:
    """The keys of one dataclass."""
    return [Entry(prefix + item.name, _as_yaml(_default(item)), item.metadata["help"]) for item in fields(schema)]


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def _as_yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.6g}" if isinstance(value, float) and not value.is_integer() else str(value)


def key_types(command: str) -> dict[str, str]:
    """Every dotted key of a command -> its annotation in the schema, whatever options its groups have chosen."""
    return dict(_leaves(command))


def _leaves(command: str) -> Iterator[tuple[str, str]]:
    groups = group_classes(command)
    for item in fields(SCHEMAS[command]):
        if item.name not in groups:
            yield item.name, str(item.type)
        else:
            for schema in dict.fromkeys([groups[item.name], *_schemas(item.name)]):
                for key in fields(schema):
                    yield f"{item.name}.{key.name}", str(key.type)


def _schemas(group: str) -> list[type[Any]]:
    return [type(option.settings) for option in GROUPS[group].values()]


def is_optional(annotation: str) -> bool:
    return annotation.endswith(" | None")


def is_list(annotation: str) -> bool:
    return annotation.startswith("list[")


def is_text(annotation: str) -> bool:
    return annotation.removesuffix(" | None") == "str"


def expected(annotation: str) -> str:
    """What a value of this annotation looks like, in words."""
    words = EXPECTED[annotation.removesuffix(" | None")]
    return f"{words} or null" if is_optional(annotation) else words


def options_with(key: str) -> list[str]:
    """Choices such as `optim=sgd` whose settings have a dotted key that other options of the group lack."""
    group, _, name = key.partition(".")
    having = [option for option, (settings, _) in GROUPS.get(group, {}).items() if hasattr(settings, name)]
    return [] if len(having) == len(GROUPS.get(group, {})) else [f"{group}={option}" for option in having]


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
