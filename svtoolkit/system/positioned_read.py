"""Reading of open files at a position, where threads share no position: ``os.pread``, which Windows does not have."""

from __future__ import annotations

import os
import threading

_position = threading.Lock()


def open_binary(path: str | os.PathLike[str]) -> int:
    """A descriptor for reading; Windows would translate line ends and stop at Ctrl-Z unless told not to.

    Raises:
        OSError: the file cannot be opened; names it.
    """
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))


def read_at(descriptor: int, count: int, offset: int) -> bytes:
    """Up to so many bytes of an open file from a position on.

    Raises:
        OSError: they cannot be read.
    """
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    with _position:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, count)
