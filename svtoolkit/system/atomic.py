"""Files and folders that are either whole or not there: written aside, flushed to disk, renamed into place."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from svtoolkit.system.temporary_names import name_beside, remove_abandoned

DELAYS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Seconds before further attempts to rename on Windows."""


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path``; on leaving the block it replaces ``path`` in one step.

    Args:
        path: the file to write; its folder is made if it is missing. Permissions are those of a new file (umask),
            and a symbolic link is replaced itself: the file it names stays as it is.
        mode: ``"w"`` (UTF-8 text, ``\\n`` line ends) or ``"wb"``.

    If the block or the flush raises, ``path`` keeps its old content and the temporary file is removed. Only a process
    that is killed leaves it (``svtoolkit.system.temporary_names``), until a process after it writes the file again.
    """
    if mode not in ("w", "wb"):
        raise ValueError(f"mode must be 'w' or 'wb', not {mode!r}")
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(target)
        descriptor, temporary = open_beside(target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(target)) from error
    text: dict[str, Any] = {"encoding": "utf-8", "newline": "\n"} if mode == "w" else {}
    try:
        with os.fdopen(descriptor, mode, **text) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.filename is None and error.errno is not None:  # a full disk does not say which file it was
            raise type(error)(error.errno, error.strerror, str(target)) from error
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder beside ``path`` to be filled; on leaving the block it takes the place of ``path`` in one step.

    Args:
        path: missing, or an empty folder.

    If the block raises, ``path`` stays as it was and the other folder is removed; errors of the system name the file
    as it would have been called. Only a process that is killed leaves it, until one after it makes the folder again.
    """
    target = Path(path).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target)
    temporary = name_beside(target)
    try:
        temporary.mkdir()
        yield temporary
        if target.exists():
            target.rmdir()
        replace(temporary, target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if error.errno is None or not str(error.filename).startswith(str(temporary)):
            raise
        named = str(error.filename).replace(str(temporary), str(target), 1)
        raise type(error)(error.errno, error.strerror, named) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_folder(target.parent)


def replace(source: Path, target: Path) -> None:
    """Rename a file, or a folder to a name that is free, over what is there.

    On Windows, programs that look at every new file (search, virus scanners) keep it open for a moment, and it cannot
    be renamed meanwhile: it is tried again.
    """
    for delay in DELAYS if sys.platform == "win32" else ():
        try:
            return os.replace(source, target)
        except PermissionError:
            time.sleep(delay)
    os.replace(source, target)


def open_beside(target: Path) -> tuple[int, Path]:
    """A new file in the same folder, open for writing; the system applies the umask, which mkstemp would not."""
    temporary = name_beside(target)
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), temporary


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, on systems that can flush folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
