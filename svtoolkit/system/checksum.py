"""Checksums of files that are larger than memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

BLOCK = 1 << 22
"""Bytes read at a time."""


def hash_file(path: Path, algorithm: str = "sha256", progress: Callable[[int], object] | None = None) -> str:
    """Hexadecimal digest of a file's content.

    Args:
        path: the file.
        algorithm: as hashlib names it; for comparison, not for security.
        progress: called with the bytes read since its last call.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
            if progress is not None:
                progress(len(block))
    return digest.hexdigest()
