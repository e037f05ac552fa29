"""Keys of the schema and the nearest of them to a word that is none; needs neither Hydra nor torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from svtoolkit.config import GROUP_SCHEMAS, SCHEMAS

EXPECTED = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list[str]": "a list such as [a,b]",
    "list[float]": "a list of numbers such as [1.0,0.9]",
}
"""Annotation in the schema -> what to call it in a message."""


def key_types(command: str) -> dict[str, str]:
    """Every dotted key of a command -> its annotation in the schema, whatever options its groups have chosen."""
    return dict(_leaves(SCHEMAS[command]))


def _leaves(schema: type[Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for item in fields(schema):
        if is_dataclass(item.default_factory):
            options = [option for (group, _), option in GROUP_SCHEMAS.items() if group == item.name]
            for node in options or [item.default_factory]:
                yield from _leaves(node, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", str(item.type)


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
    """Choices such as `optim=sgd` whose schema has a dotted key that the other options of the group lack."""
    group, _, name = key.partition(".")
    return [
        f"{group}={option}"
        for (of_group, option), schema in GROUP_SCHEMAS.items()
        if of_group == group and name in {item.name for item in fields(schema)}
    ]


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
