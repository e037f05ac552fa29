"""Members of a tar by their names, read as the archive goes by: no member is unpacked, and no size is trusted."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import IO

from svtoolkit.checkpoints.pickled_names import PickleError

MOST_MEMBERS = 10_000
LARGEST_ARCHIVE = 16 << 30
"""Bytes, unpacked; a gzip of nothing but zeros is a thousand times smaller."""

LARGEST_EXTENSION = 1 << 20
"""Bytes of what a tar says of its next member: long names, times."""

_CHUNK = 1 << 20


def read_tar_members(stream: IO[bytes], limits: Mapping[str, int]) -> dict[str, bytes]:
    """Content of the wanted members, each of which has to be there once; a leading ``./`` counts for nothing.

    Args:
        stream: of the unpacked tar, read from where it stands to the end of the last wanted member.
        limits: name -> bytes at most.

    Raises:
        PickleError: a member is missing, there twice, too large or cut off; or any is a link or points out of the
            archive.
    """
    found: dict[str, bytes] = {}
    total = 0
    for _ in range(MOST_MEMBERS):
        block = stream.read(tarfile.BLOCKSIZE)
        if not block.strip(b"\0"):
            break
        member = _header(block)
        total += member.size
        if total > LARGEST_ARCHIVE:
            raise PickleError(f"its members have more than {LARGEST_ARCHIVE} bytes")
        if member.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            if member.size > LARGEST_EXTENSION:
                raise PickleError(f"it describes a member in {member.size} bytes, expected at most {LARGEST_EXTENSION}")
            _skip(stream, member.size)
            continue
        name = _checked_name(member)
        if name not in limits:
            _skip(stream, member.size)
            continue
        if name in found:
            raise PickleError(f"it has the member {name!r} twice")
        if member.size > limits[name]:
            raise PickleError(f"its member {name!r} has {member.size} bytes, expected at most {limits[name]}")
        found[name] = _content(stream, member.size)
        _skip(stream, 0, after=member.size)
    missing = [name for name in limits if name not in found]
    if missing:
        raise PickleError(f"it is a tar without {' and '.join(missing)}, which a .nemo file has")
    return found


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise PickleError(f"its tar is damaged ({error})") from error
    if member.size < 0:
        raise PickleError("its tar has a member of fewer than no bytes")
    return member


def _checked_name(member: tarfile.TarInfo) -> str:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise PickleError(f"its member {member.name[:80]!r} points out of the archive")
    if not (member.isreg() or member.isdir()):
        raise PickleError(f"its member {member.name[:80]!r} is no regular file, but a link or a device")
    return str(path)


def _content(stream: IO[bytes], size: int) -> bytes:
    """So many bytes, taken as they come: memory grows with what is there, not with what is said to be."""
    content = bytearray()
    while len(content) < size:
        chunk = stream.read(min(_CHUNK, size - len(content)))
        if not chunk:
            raise PickleError("its tar is cut off")
        content += chunk
    return bytes(content)


def _skip(stream: IO[bytes], size: int, *, after: int | None = None) -> None:
    """Go past some bytes, and the padding behind them or behind ``after`` bytes that were read."""
    left = size + -(size if after is None else after) % tarfile.BLOCKSIZE
    while left:
        chunk = stream.read(min(_CHUNK, left))
        if not chunk:
            raise PickleError("its tar is cut off")
        left -= len(chunk)
