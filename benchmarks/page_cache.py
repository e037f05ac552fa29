"""Files out of the page cache, and how much of them is still in it."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path


def drop_from_cache(paths: Iterable[Path]) -> None:
    """Ask the system to forget what it holds of these files; one that lives in memory (tmpfs) stays there."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # what is not on the disk yet is not dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cached_share(paths: Iterable[Path]) -> float:
    """Share of the pages of these files that are in memory, as mincore(2) says it."""
    library = ctypes.CDLL(None, use_errno=True)
    held = pages = 0
    for path in paths:
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
            count = -(-len(mapped) // mmap.PAGESIZE)
            flags = (ctypes.c_ubyte * count)()
            begin = ctypes.c_char.from_buffer(mapped)
            failed = library.mincore(ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_size_t(len(mapped)), flags)
            del begin  # the mapping cannot be closed while something leads into it
            if failed:
                raise OSError(ctypes.get_errno(), f"mincore: {os.strerror(ctypes.get_errno())}", str(path))
            held += sum(flag & 1 for flag in flags)
            pages += count
    return held / pages
