"""A package as pip would leave it: a module, and a dist-info folder with its entry points."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from paths import ROOT


def install_package(
    folder: Path, name: str, source: str, entry_points: Mapping[str, Mapping[str, str]], version: str = "0.1"
) -> Path:
    """Write a package of one module into a folder that is put on sys.path or PYTHONPATH; returns the folder.

    Args:
        name: of the package and of its module.
        source: of the module.
        entry_points: group -> name -> "module:attribute".
    """
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}.py").write_text(dedent(source), encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def examples() -> dict[str, str]:
    """Code of docs/extending.md by its first line, a comment: path of a file, or "path, in NAME" for a row."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for block in re.findall(r"```(?:python|toml)\n(.*?)```", page, flags=re.DOTALL):
        heading, _, code = block.partition("\n")
        if heading.startswith("# "):
            name = heading.removeprefix("# ")
            found[name] = found.get(name, "") + code
    return found


def install_example(folder: Path) -> Path:
    """The package of docs/extending.md as pip would leave it."""
    project = configparser.ConfigParser()
    project.optionxform = str  # type: ignore[assignment,method-assign]
    project.read_string(examples()["pyproject.toml"])
    prefix = "project.entry-points."
    points = {
        section.removeprefix(prefix).strip('"'): {key: value.strip('"') for key, value in project[section].items()}
        for section in project.sections()
        if section.startswith(prefix)
    }
    return install_package(folder, "my_speaker", examples()["my_speaker.py"], points)
