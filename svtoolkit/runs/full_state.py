"""Full states of a run: written whole or not at all, verified when read, the previous one as fall-back."""

from __future__ import annotations

import logging
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.regular_file import check_regular

log = logging.getLogger(__name__)

# Of a part's attributes in a zip file. torch gives a tensor that carries it no content: whatever was in memory.
_DIRECTORY_BIT = 0x10

_NAME = re.compile(r"state-(\d{10})\.pt")


def save_state(folder: str | Path, step: int, state: dict[str, Any], *, keep: int) -> Path:
    """Write ``folder``/state-<step>.pt and drop all but the newest ``keep`` states up to this one.

    States of later steps stay: they were damaged, or the run would have resumed from them, and they must not push out
    good ones. The run replaces them when it gets there.

    Args:
        state: tensors, numbers, strings, lists and dicts only, so that reading it back executes nothing.

    Raises:
        OSError: the file could not be written (a full disk, say); older states are untouched.
        ValueError: ``keep`` is below 1.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}, expected 1 or more")
    path = Path(folder) / f"state-{step:010d}.pt"
    for leftover in path.parent.glob(".state-*.tmp"):  # of a process that was killed while it wrote
        leftover.unlink(missing_ok=True)
    with atomic_write(path, "wb") as stream:
        try:
            torch.save(state, stream)
        except RuntimeError as error:  # torch's zip writer continues after a failed write, and then fails of that
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise OSError(f"{path}: {error}") from error
    for old in [other for other in list_states(folder) if other.name <= path.name][:-keep]:
        old.unlink(missing_ok=True)
    return path


def list_states(folder: str | Path) -> list[Path]:
    """States in the folder, oldest first."""
    return sorted(path for path in Path(folder).glob("state-*.pt") if _NAME.fullmatch(path.name))


def load_latest_state(
    folder: str | Path, check: Callable[[dict[str, Any]], object] = lambda state: None
) -> tuple[int, dict[str, Any]] | None:
    """Read the newest state that is whole; damaged ones are named in the log and left out.

    Args:
        check: raises where a state is no state of a run.

    Returns:
        (finished optimizer steps, state), or None where the folder holds no state at all.

    Raises:
        UserError: there are states, and none of them can be read.
    """
    for path, state in read_states(folder, check):
        return int(path.stem.removeprefix("state-")), state
    return None


def read_states(
    folder: str | Path, check: Callable[[dict[str, Any]], object] = lambda state: None
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """All states that are whole, the newest first, each read when it is asked for; else as ``load_latest_state``."""
    states = list_states(folder)
    found = 0
    for path in reversed(states):
        try:
            state = read_verified(path)
            check(state)
        except Exception as error:  # a parser that meets damage may raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            log.warning("%s cannot be read (%s): falling back to the state before it", path, reason)
            continue
        found += 1
        yield path, state
    if states and not found:
        raise UserError(
            f"{folder}: none of {len(states)} full states can be read; restore one from a backup, "
            "or start again in another exp_dir"
        )


def read_verified(path: Path) -> dict[str, Any]:
    """Read a file of ``torch.save`` after checking the checksums of all its parts; executes nothing."""
    check_regular(path)
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            if part.external_attr & _DIRECTORY_BIT:
                raise OSError(f"{part.filename} is marked as a folder")
            if part.compress_type != zipfile.ZIP_STORED:
                raise OSError(f"{part.filename} is compressed, which torch never does")
        damaged = archive.testzip()
        if damaged is not None:
            raise OSError(f"checksum of {damaged} is wrong")
    return torch.load(path, map_location="cpu", weights_only=True)
