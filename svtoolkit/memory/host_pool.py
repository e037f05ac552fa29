"""Host memory for activations: allocated once, used again in every step; pinned, or mapped from a file."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from svtoolkit.errors import UserError

ROUNDED_TO = 4096
"""Bytes: a page."""
LARGEST_SHARE = 2
"""A buffer is given for a need of at least half of it: crops of other lengths find one, small needs take no large."""


class HostBuffer:
    """Bytes on the host, and when they may be written again.

    Attributes:
        memory: one byte a value.
        last_use: end of the copy that used it last, to be waited for by the next one; None: there was none.
    """

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self.last_use: Any = None

    def view(self, count: int, dtype: torch.dtype) -> Tensor:
        """The first ``count`` values of a type."""
        return self.memory[: count * dtype.itemsize].view(dtype)


class HostPool:
    """Buffers that come back when the activations in them are no longer needed.

    Args:
        allocate: number of bytes -> so many on the host.
    """

    def __init__(self, allocate: Callable[[int], Tensor]) -> None:
        self._allocate = allocate
        self._free: list[HostBuffer] = []
        self.allocated = 0

    def __deepcopy__(self, memo: Any) -> HostPool:
        """Of a copied network: buffers are never shared."""
        return HostPool(self._allocate)

    def take(self, nbytes: int) -> HostBuffer:
        """The smallest free buffer that is large enough and not much too large; a new one where there is none."""
        fitting = [each for each in self._free if nbytes <= len(each.memory) <= max(LARGEST_SHARE * nbytes, ROUNDED_TO)]
        if fitting:
            buffer = min(fitting, key=lambda each: len(each.memory))
            self._free.remove(buffer)
            return buffer
        size = -(-nbytes // ROUNDED_TO) * ROUNDED_TO
        buffer = HostBuffer(self._allocate(size))
        self.allocated += size
        return buffer

    def give(self, buffer: HostBuffer) -> None:
        """Take a buffer back; whoever gets it waits for its ``last_use``."""
        self._free.append(buffer)


def pinned(nbytes: int) -> Tensor:
    """Page-locked memory, which a GPU reads and writes by itself (Hascoet et al. 2019, sec. 4.3)."""
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)


class MappedFolder:
    """Memory that is mapped from a file each, which has no name any more: an interrupted run leaves nothing.

    Such memory is not pinned: a copy of it keeps the Python of the program waiting.

    Args:
        folder: on a fast disk.

    Raises:
        UserError: it is no folder that can be written to.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir() or not os.access(self.folder, os.W_OK):
            raise UserError(f"memory.folder is {str(folder)!r}, expected a folder that exists and can be written to")

    def __call__(self, nbytes: int) -> Tensor:
        """So many bytes of the disk, reserved now: a full disk is an error here, and not a signal later."""
        number, name = tempfile.mkstemp(prefix="svt-offload-", dir=self.folder)
        try:
            _reserve(number, nbytes)
            return torch.from_file(name, shared=True, size=nbytes, dtype=torch.uint8)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise UserError(
                f"memory.folder {str(self.folder)!r} has no room for {nbytes} more bytes of activations; free some, "
                "name another folder, or leave it out"
            ) from error
        finally:
            os.close(number)
            _remove(name)


def _reserve(number: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(number, 0, nbytes)
    else:
        os.truncate(number, nbytes)


def _remove(name: str) -> None:
    try:
        os.unlink(name)
    except PermissionError:  # Windows keeps a file that is mapped
        return
