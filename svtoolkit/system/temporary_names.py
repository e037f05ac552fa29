"""Names of files and folders that are being written, and the removal of those whose process was killed.

`.<name>.<machine>-<pid>-<random>.tmp`: whether the writer still lives can be told on its own machine alone. What
another machine, or an older version, left counts as abandoned once it has not changed for a day.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import sys
import time
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

# Of the file's name, at the front of the temporary one's: what is added must fit the file system's limit too.
_NAME_LENGTH = 40

_OWNER = re.compile(r"\.([0-9a-f]{8})-(\d+)-([0-9a-f]{16})\.tmp")
_NAME = re.compile(r"\..+\.([0-9a-f]{8}-\d+-)?[0-9a-f]{16}\.tmp", re.DOTALL)

LONGEST_SILENCE = 86_400.0
"""Seconds without a change after which a writer that cannot be asked is taken for dead."""


def name_beside(target: Path) -> Path:
    """A new name in the same folder."""
    pid = os.getpid()
    owner = f"{_machine()}-{pid}-{_process(pid)}{secrets.token_hex(4)}"
    return target.parent / f".{target.name[:_NAME_LENGTH]}.{owner}.tmp"


def remove_abandoned(target: Path) -> None:
    """Delete what killed processes left beside a file or folder that they were writing; never what one is writing.

    A folder is listed once a process, so that writing to one of 100,000 files costs no more than to another: what is
    left there later goes when a later process writes.
    """
    beginning = f".{target.name[:_NAME_LENGTH]}."
    with suppress(OSError):  # of a folder that may not be listed: there is nothing that must be removed
        status = os.stat(target.parent)
        for name in _found_in(target.parent, status.st_dev, status.st_ino, os.getpid()):
            if name.startswith(beginning):
                with suppress(FileNotFoundError):
                    if _is_abandoned(target.parent / name):
                        remove(target.parent / name)


@lru_cache(maxsize=1024)
def _found_in(folder: Path, device: int, inode: int, pid: int) -> tuple[str, ...]:
    """Temporary names in a folder when a process first asked; 50 ms where there are 100,000 files."""
    return tuple(name for name in os.listdir(folder) if is_temporary(name))


def is_temporary(name: str) -> bool:
    """Whether a name is one that ``name_beside`` gives, or gave before it named the process."""
    return _NAME.fullmatch(name) is not None


def is_being_written(name: str) -> bool:
    """Whether the process that a temporary name tells of lives on this machine."""
    owner = _OWNER.search(name)
    return owner is not None and owner[1] == _machine() and _lives(int(owner[2]), owner[3])


def remove(path: Path) -> None:
    """Delete a file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_abandoned(path: Path) -> bool:
    owner = _OWNER.search(path.name)
    if owner is not None and owner[1] == _machine():
        return not _lives(int(owner[2]), owner[3])
    return time.time() - path.stat().st_mtime > LONGEST_SILENCE


def _lives(pid: int, random: str) -> bool:
    """Whether the process is there; where the system cannot be asked, it is."""
    if pid == os.getpid():  # or one before it that had this number, as the first of a container has
        return random.startswith(_process(pid))
    if sys.platform == "win32":  # where os.kill(pid, 0) is no question
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state not in "ZX"  # ended, though nobody has asked for its status


@cache
def _process(pid: int) -> str:
    """Of this process, by its number: a child that is forked gets another one."""
    return secrets.token_hex(4)


@cache
def _machine() -> str:
    """Tells machines, and containers with processes of their own, apart."""
    name = os.uname().nodename if hasattr(os, "uname") else ""
    processes = 0
    with suppress(OSError):
        processes = os.stat("/proc/self/ns/pid").st_ino
    return hashlib.sha256(f"{name} {processes}".encode()).hexdigest()[:8]
