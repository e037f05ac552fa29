"""Many files at the cost of one flush: written aside, flushed together, then renamed one by one.

A flush waits for the disk, for milliseconds, and of a million files for hours. As with ``atomic_write``, a file that
has its name is whole, also after the power was cut; one that has not may be lost.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from svtoolkit.system.atomic import open_beside, replace

Write = Callable[[str, bytes], None]


@contextmanager
def atomic_batch() -> Iterator[Write]:
    """A function that writes a file; on leaving the block all that were written are flushed and get their names.

    Where the block raises, those that were written before are finished all the same.

    Raises:
        OSError: a file cannot be written or flushed; names it, or the first of those that were flushed together.
    """
    written: list[tuple[Path, Path]] = []

    def write(path: str, content: bytes) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = open_beside(target)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise type(error)(error.errno, error.strerror, path) from error
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        written.append((temporary, target))

    try:
        yield write
    except BaseException:
        with suppress(OSError):
            _finish(written)
        raise
    _finish(written)


def sync_file_systems(paths: Iterable[Path]) -> None:
    """Write everything to the disk that is on the file systems of some files or folders, each of which is there.

    Windows flushes no file system without an administrator's rights: there the files themselves are flushed.

    Raises:
        OSError: it could not be written.
    """
    if not hasattr(os, "sync"):
        for path in paths:
            _sync_file(path)
        return
    asked = set()
    for path in paths:
        device = os.stat(path).st_dev
        if device not in asked:
            asked.add(device)
            _sync_file_system(path)


def _finish(written: list[tuple[Path, Path]]) -> None:
    """Flush, then rename; the files that could not be flushed are removed."""
    try:
        if written:
            sync_file_systems(temporary for temporary, _ in written)
        for temporary, target in written:
            replace(temporary, target)
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise type(error)(error.errno, error.strerror, str(written[0][1])) from error
        raise
    finally:
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)


def _sync_file(path: Path) -> None:
    if path.is_file():
        with path.open("r+b") as stream:
            os.fsync(stream.fileno())


def _sync_file_system(path: Path) -> None:
    flush = _syncfs()
    if flush is None:
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if flush(descriptor) != 0:
            number = ctypes.get_errno() or errno.EIO
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Linux's syncfs(2), of one file system; None elsewhere: sync(2) is of all of them."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
