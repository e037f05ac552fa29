"""Materials that take long to make, made once a test run for all its workers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import filelock


def made_once(shared: Path, name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``name`` of the test run's ``shared_folder``, which the first who asks has filled; not to be changed.

    Args:
        make: is given the empty folder to fill. Where it fails, the next who asks begins anew.
    """
    folder, made = shared / name, shared / f"{name}.made"
    with filelock.FileLock(shared / f"{name}.lock"):
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
