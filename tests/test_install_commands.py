"""Every `pip install` that a message or a page prints: it installs what is meant, and zsh leaves it as it is."""

from __future__ import annotations

import re
import shlex
import sys

import pytest
from paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*/README.md")]
PRINTED = [
    (path.relative_to(ROOT).as_posix(), command)
    for path in (*sorted((ROOT / "svtoolkit").rglob("*.py")), *PAGES)
    for command in re.findall(r"pip install ([^`#\n]+)", path.read_text(encoding="utf-8"))
]
BESIDES = {"s3fs"}
"""What pages name for addresses that no extra is for."""


def packages_of_the_project() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    return {re.split(r"[<>=!\[]", requirement)[0] for requirement in wanted}


def test_there_are_some():
    assert len(PRINTED) >= 8


@pytest.mark.parametrize(("path", "command"), PRINTED)
def test_it_names_what_it_installs(path, command):
    words = shlex.split(re.sub(r"(?<=\w)\.$", "", command.strip()))
    packages = [word for word in words if not word.startswith("-")]
    assert packages, path
    for package in packages:
        name = re.split(r"[<>=!\[]", package)[0]
        assert name == "." or name in packages_of_the_project() | BESIDES, f"{path}: {package}"
        if re.search(r"[\[\]<>*?=!]", package):
            assert f"'{package}'" in command, f"{path}: zsh reads {package} as a pattern unless it is quoted"
