"""docs/settings.md: every key of every command, from the dataclasses of svtoolkit.config.

python scripts/settings_page.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from svtoolkit.composition.groups import GROUPS, group_classes
from svtoolkit.composition.keys import Entry, described_keys, described_settings
from svtoolkit.config import COMMANDS, REQUIRED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
INTRODUCTION = """# Settings: every key of every command

Made by `python scripts/settings_page.py` from the dataclasses of `svtoolkit/config`, where a key has its default, its
type and its help. How keys, groups and experiments go together: [configuration.md](configuration.md).
"""


def page() -> str:
    """The whole text."""
    parts = [INTRODUCTION]
    for command in ("train", *(name for name in COMMANDS if name != "train")):
        groups = group_classes(command)
        entries = described_keys(command)
        parts.append(f"## svt {command}: {COMMANDS[command].summary}\n")
        parts.append(table([entry for entry in entries if entry.name.partition(".")[0] not in groups]))
        if command != "train":
            if groups:
                parts.append(f"Groups, as of `svt train`: {', '.join(f'`{group}`' for group in groups)}.\n")
            continue
        for group, schema in groups.items():
            parts.append(f"### {group}: {schema.__doc__.strip().removesuffix('.')}\n")
            parts.append(table([entry for entry in entries if entry.name.startswith(f"{group}.")]))
            parts.append(options(group, schema))
    return "\n".join(parts)


def table(entries: Sequence[Entry]) -> str:
    rows = [
        f"| `{name}` | {'required' if default == REQUIRED else f'`{default}`'} | {text.replace('|', chr(92) + '|')} |"
        for name, default, text in entries
    ]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows, ""])


def options(group: str, schema: type) -> str:
    """What can be chosen, and the keys that options have beyond those of the default one."""
    lines = [
        f"- `{group}={name}`" + (f": {option.help}" if option.help else "") for name, option in GROUPS[group].items()
    ]
    if group == "model":
        lines = [f"Options: {', '.join(f'`{name}`' for name in GROUPS[group])}."]
    known = {item.name for item in fields(schema)}
    having: dict[tuple[Entry, ...], list[str]] = {}
    for name, option in GROUPS[group].items():
        beyond = tuple(entry for entry in described_settings(type(option.settings)) if entry.name not in known)
        having.setdefault(beyond, []).append(f"`{group}={name}`")
    released = getattr(GROUPS[group], "released", ())
    for name in released:
        beyond = tuple(
            entry for entry in described_settings(type(GROUPS[group][name].settings)) if entry.name not in known
        )
        having.setdefault(beyond, []).append(f"`{name}`, which `init_from=` alone brings,")
    for beyond, names in having.items():
        if beyond:
            lines += [
                "",
                f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} besides:",
                "",
                table(beyond).rstrip(),
            ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
