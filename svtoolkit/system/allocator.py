"""Memory that is freed stays with the process, for as long as the same sizes are asked for again and again."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
"""Settings of mallopt(3)."""

KEEPING = {MMAP_MAX: 0, TRIM_THRESHOLD: -1, TOP_PAD: 64 << 20}
"""No block of its own from the system, nothing handed back, and 64 MiB at a time."""

USUAL = {MMAP_MAX: 1 << 16, MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20, TOP_PAD: 0}
"""What glibc comes to by itself where large blocks are freed."""


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """In the block, what is freed is not handed back to the system; at its end all of it is.

    glibc gives a large block back as soon as it is freed, and the system clears each page of the next one when it is
    first touched. The activations of a training step on a CPU are such blocks, of the same sizes in every step. For
    other sizes each time there would be gaps that nothing fits into. Without glibc, and where the user has told it
    something by a variable (``MALLOC_...``, ``GLIBC_TUNABLES``), nothing is done.
    """
    library = _glibc()
    if library is None:
        yield
        return
    _set(library, KEEPING)
    try:
        yield
    finally:
        _set(library, USUAL)
        library.malloc_trim(0)


def _glibc() -> Any:
    is_told = "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ)
    return None if is_told or platform.libc_ver()[0] != "glibc" else ctypes.CDLL(None)


def _set(library: Any, settings: dict[int, int]) -> None:
    for name, value in settings.items():
        library.mallopt(name, value)
