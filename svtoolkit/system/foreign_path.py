"""Paths of Windows in lists that are read elsewhere."""

from __future__ import annotations

import os
import re

_DRIVE = re.compile(r"(^|/)[A-Za-z]:[\\/]")


def remedy_of_windows_path(path: str | os.PathLike[str]) -> str | None:
    """What to do about a path that leads nowhere because it was written on Windows; None for others, and on Windows.

    Args:
        path: as a list has it, or with the folder in front that relative paths are taken from.
    """
    text = os.fspath(path)
    if os.sep == "\\" or not (_DRIVE.search(text) or "\\" in text):
        return None
    return "it is a path of Windows, which this system does not read: write it as a path of this system, with /"
