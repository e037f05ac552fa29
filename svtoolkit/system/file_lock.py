"""A lock that processes of one machine share; the system takes it back from a holder that dies."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


fcntl, msvcrt = _import("fcntl"), _import("msvcrt")
"""The locks of Unix, and those of Windows; of each other's system None."""

UNKNOWN = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""What file systems answer that have no locks, as some network ones."""


LOCKED_BYTE = 2**31 - 2
"""What Windows locks of a file: far behind the end of any, as what is locked nobody else may read."""

POLL_SECONDS = 0.1
"""Between attempts to take a lock of Windows, which waits for none longer than ten seconds."""

_TAKEN = (errno.EACCES, errno.EDEADLK)
"""What Windows answers where another holds the lock."""

_held: set[int] = set()
"""Descriptors of the locks that this process holds or waits for."""

_to_delete: set[Path] = set()
"""Files of locks that are deleted when they are released."""


class NoLocksError(OSError):
    """The file system has no locks; names the file."""


@contextmanager
def hold_lock(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is missing and stays.

    Children that are forked meanwhile have no part in it: it ends with this process, though they may live on.

    Args:
        path: the file, in a folder that exists.
        wait: until its holder releases it.

    Raises:
        BlockingIOError: another process or thread holds it, and ``wait`` is False.
        NoLocksError: the file system has none, or the system.
    """
    if fcntl is None and msvcrt is None:
        raise NoLocksError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(path))
    # Opened for writing: NFS grants a lock of one holder on no other descriptor.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(descriptor)
    try:
        try:
            _take(descriptor, wait)
        except OSError as error:
            if error.errno in UNKNOWN:
                raise NoLocksError(error.errno, error.strerror, str(path)) from error
            raise
        try:
            yield
        finally:
            # Closing alone would leave it to a child that was forked, but not by Python, and has the descriptor, too.
            _give_back(descriptor)
    finally:
        _held.discard(descriptor)
        os.close(descriptor)
        if path in _to_delete:
            _to_delete.discard(path)
            with suppress(OSError):  # another process has opened it meanwhile
                path.unlink()


def is_held(path: Path) -> bool:
    """Whether another process or thread holds the lock of a file; False where the file system has none."""
    try:
        with hold_lock(path, wait=False):
            return False
    except BlockingIOError:
        return True
    except NoLocksError:
        return False


def delete_lock(path: Path) -> None:
    """Delete the file of a lock that this process holds; where open files cannot be deleted, once it is released."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        _to_delete.add(path)


def has_shared_locks() -> bool:
    """Whether the system has locks that several readers of a file hold at the same time."""
    return fcntl is not None


def share_lock(descriptor: int) -> None:
    """Wait until nobody holds the lock of an open file; then hold it with all others who share it."""
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def release_shared_lock(descriptor: int) -> None:
    """Give up a part in the lock of an open file."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _take(descriptor: int, wait: bool) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    while True:
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        try:
            return msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno == errno.EINVAL:  # its word for a function that the file system does not have
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)) from error
            if error.errno not in _TAKEN:
                raise
            if not wait:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        time.sleep(POLL_SECONDS)


def _give_back(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return
    os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
    msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)


def _leave_to_parent() -> None:
    """In a child that was just forked: its descriptors would keep the locks of a parent that dies."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in _held:
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
