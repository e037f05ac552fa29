"""A lock that processes of one machine share; the system takes it back from a holder that dies."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

UNKNOWN = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""What file systems answer that have no locks, as some network ones."""


_held: set[int] = set()
"""Descriptors of the locks that this process holds or waits for."""


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
        NoLocksError: the file system has none, or the system is Windows.
    """
    if fcntl is None:
        raise NoLocksError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(path))
    # Opened for writing: NFS grants a lock of one holder on no other descriptor.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    _held.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in UNKNOWN:
                raise NoLocksError(error.errno, error.strerror, str(path)) from error
            raise
        try:
            yield
        finally:
            # Closing alone would leave it to a child that was forked, but not by Python, and has the descriptor, too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def _leave_to_parent() -> None:
    """In a child that was just forked: its descriptors would keep the locks of a parent that dies."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in _held:
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
