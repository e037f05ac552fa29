"""The files of conf/ as plain text: which groups and options there are, and what each key is for.

The comment behind a key is the only place that explains it; `svt <command> --help` shows it from there. Read without a
YAML parser, so that help is instant; tests/test_conf.py sees to it that every key is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from svtoolkit.errors import UserError

KEY_LINE = re.compile(r"(?P<key>\w+): *(?P<value>[^#]*?)(?: *# *(?P<text>.*))?")
CHOICE_LINE = re.compile(r" +- (?P<group>\w+): *(?P<option>\w+)(?: *# *(?P<text>.*))?")
NO_OPTION = "null"


class Entry(NamedTuple):
    """A key or a group: its dotted name, its default as YAML writes it, and what it is for."""

    name: str
    default: str
    text: str


def conf_dir() -> Path:
    """The folder of YAML files: inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"{package}: the installation has no conf/ folder; reinstall svtoolkit with pip")


def command_dir(command: str) -> Path:
    """Where <command>.yaml is: conf/ itself, beside the groups it composes, or conf/commands/, where no group is.

    Apart, since Hydra takes `model=x` for the choice of a group wherever a group of that name is in sight.
    """
    plain = conf_dir() / "commands"
    return plain if (plain / f"{command}.yaml").is_file() else conf_dir()


def config_groups(command: str) -> dict[str, list[str]]:
    """Configuration groups that a command composes -> their options, read from the folders of conf/."""
    return {
        group: sorted((file.stem for file in (conf_dir() / group).glob("*.yaml")), key=_by_number)
        for group in sorted(choice.name for choice in default_choices(command))
    }


def default_choices(command: str) -> list[Entry]:
    """The defaults list of a command: group, chosen option and remark, in the order they are composed."""
    lines = _lines(command_dir(command) / f"{command}.yaml")
    choices = (CHOICE_LINE.fullmatch(line) for line in lines)
    return [Entry(found["group"], found["option"], found["text"] or "") for found in choices if found]


def described_keys(command: str) -> list[Entry]:
    """All keys of a command with the options that it composes by default: its own first, then group by group."""
    described = [*_keys(command_dir(command) / f"{command}.yaml")]
    for group, option, _ in default_choices(command):
        if option != NO_OPTION:
            described += _keys(conf_dir() / group / f"{option}.yaml", f"{group}.")
    return described


def _by_number(option: str) -> list[tuple[int, str]]:
    """Sorts resnet18 before resnet101."""
    return [(int(part or 0) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", option)]


def _keys(file: Path, prefix: str = "") -> Iterator[Entry]:
    for line in _lines(file):
        found = KEY_LINE.fullmatch(line)
        if found and found["key"] != "defaults":
            yield Entry(prefix + found["key"], found["value"].strip(), found["text"] or "")


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()
