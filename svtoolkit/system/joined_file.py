"""A file that came in parts, read as one without joining it: no second copy of a hundred gigabytes."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path


class JoinedFile(io.RawIOBase):
    """The bytes of some files, one after the other, read-only and seekable; not for several threads at a time."""

    def __init__(self, parts: Sequence[Path]) -> None:
        super().__init__()
        self._streams = [part.open("rb", buffering=0) for part in parts]
        sizes = [os.fstat(stream.fileno()).st_size for stream in self._streams]
        self._begins = [0, *accumulate(sizes)]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._begins[-1]}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, before the beginning")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill as much of the buffer as one part can; 0 at the end."""
        if self._position >= self._begins[-1]:
            return 0
        number = bisect_right(self._begins, self._position) - 1
        stream = self._streams[number]
        stream.seek(self._position - self._begins[number])
        count = stream.readinto(buffer)
        self._position += count
        return count

    def close(self) -> None:
        for stream in getattr(self, "_streams", ()):
            stream.close()
        super().close()
