"""Experiments and options as text: what a file of one's own begins with."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from svtoolkit.composition.catalogue import EXPERIMENT, WITH_EXPERIMENTS, Catalogue
from svtoolkit.composition.groups import GROUPS
from svtoolkit.composition.keys import did_you_mean
from svtoolkit.errors import UserError


def shipped_names() -> list[str]:
    """experiment/mini, optim/sgd and so on; experiments first."""
    options = Catalogue(WITH_EXPERIMENTS[0]).options
    groups = [EXPERIMENT, *(group for group in options if group != EXPERIMENT)]
    return [f"{group}/{option}" for group in groups for option in options[group]]


def shipped_text(name: str) -> str:
    """What a file says that stands for an experiment or an option, in YAML.

    Raises:
        UserError: there is none of that name; lists what there is.
    """
    names = shipped_names()
    if name not in names:
        nearest = did_you_mean(name, names)
        raise UserError(f"there is no {name!r} to copy; {nearest and f'{nearest} '}all: {', '.join(names)}")
    group, _, option = name.partition("/")
    if group == EXPERIMENT:
        return Catalogue(WITH_EXPERIMENTS[0]).files[EXPERIMENT][option].read_text(encoding="utf-8")
    return _preset(group, option)


def _preset(group: str, option: str) -> str:
    """An option with all its keys, as a preset that is based on it."""
    found = GROUPS[group][option]
    key = getattr(GROUPS[group], "key", "name")
    lines = [f"# {group}={option}: {found.help}" if found.help else f"# {group}={option}", "defaults:", f"  - {option}"]
    for item in fields(found.settings):
        if item.name != key:
            head = f"{item.name}: {_as_yaml(getattr(found.settings, item.name))}"
            lines.append(f"{head:<28} # {item.metadata.get('help', '')}")
    return "\n".join(lines) + "\n"


def _as_yaml(value: Any) -> str:
    """JSON is YAML, but for a float without a point in its exponent's form, which YAML 1.1 reads as text."""
    if isinstance(value, float):
        text = repr(value)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)
