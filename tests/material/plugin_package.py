"""A package as pip would leave it: a module, and a dist-info folder with its entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent


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
