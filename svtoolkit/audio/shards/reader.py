"""Reading utterances out of shards by offset and size, through descriptors that stay open.

Local archives are read with ``read_at``, so that threads or forked processes share no position. Archives at
a URL are read through a cache on disk (``RemoteShards``).
"""

from __future__ import annotations

import errno
import io
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, BinaryIO

from svtoolkit.audio.shards.location import ShardLocation
from svtoolkit.errors import UserError
from svtoolkit.system.positioned_read import open_binary, read_at
from svtoolkit.system.regular_file import check_regular

if TYPE_CHECKING:
    from svtoolkit.audio.shards.remote_cache import RemoteShards

OPEN_ARCHIVES = 128
"""Descriptors kept by a process; systems grant 1024 as a rule."""

READ_WHOLE = 1 << 19
"""Bytes up to which a member is read in one piece, which is faster; of a longer one only what is sought."""

READ_AHEAD = 1 << 16
"""Bytes read at a time of a member that is not read whole."""

_configured: RemoteShards | None = None


def configure_remote(remote: RemoteShards | None) -> RemoteShards | None:
    """Set the cache that URLs are read through; returns the one before.

    Holds for this process and those forked from it. Processes started in another way call it themselves: a
    ``RemoteShards`` can be pickled.
    """
    global _configured
    before, _configured = _configured, remote
    return before


def configured_remote() -> RemoteShards | None:
    """The cache that URLs are read through in this process."""
    return _configured


def read_member(location: ShardLocation) -> bytes:
    """The bytes of one utterance.

    Raises:
        UserError: the archive is missing, ends too early or cannot be read; a URL without a cache, or one that
            cannot be downloaded.
    """
    archive = _open(location)
    try:
        return _read_at(archive, location, location.offset, location.size)
    finally:
        archive.release()


def open_member(location: ShardLocation) -> BinaryIO:
    """The bytes of one utterance as a file that can be sought; a long one is read as far as it is needed.

    Raises: as ``read_member``. The file must be closed.
    """
    if location.size <= READ_WHOLE:
        return io.BytesIO(read_member(location))
    return io.BufferedReader(_MemberStream(location, _open(location)), READ_AHEAD)


class _Archive:
    """An open descriptor, closed with its last reference: a thread may still read what another has dropped."""

    def __init__(self, descriptor: int, remote: RemoteShards | None = None) -> None:
        self.descriptor = descriptor
        self._remote = remote

    def release(self) -> None:
        """Let the cache drop this archive again."""
        if self._remote is not None:
            self._remote.unlock(self.descriptor)

    def __del__(self) -> None:
        os.close(self.descriptor)


class _OpenArchives:
    """The archives used last, by path."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._archives: OrderedDict[str, _Archive] = OrderedDict()
        self.renew_lock()

    def renew_lock(self) -> None:
        """A forked process must not wait for a thread that it does not have."""
        self._lock = threading.Lock()

    def get(self, path: str) -> _Archive:
        with self._lock:
            archive = self._archives.get(path)
            # An archive without a name was replaced or deleted since: what has its name now is what the caller means.
            if archive is None or not os.fstat(archive.descriptor).st_nlink:
                check_regular(path)
                archive = self._archives[path] = _Archive(open_binary(path))
            self._archives.move_to_end(path)
            if len(self._archives) > self._capacity:
                self._archives.popitem(last=False)
            return archive


_local = _OpenArchives(OPEN_ARCHIVES)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_local.renew_lock)


class _MemberStream(io.RawIOBase):
    """A stretch of an archive as a file of its own."""

    def __init__(self, location: ShardLocation, archive: _Archive) -> None:
        self._location = location
        self._archive = archive
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._location.size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = start + offset
        return self._position

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # typeshed has no name for buffers before 3.12
        count = min(len(view), max(self._location.size - self._position, 0))
        view[:count] = _read_at(self._archive, self._location, self._location.offset + self._position, count)
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._archive.release()
        super().close()


def _open(location: ShardLocation) -> _Archive:
    """An archive that reaches to the end of the location."""
    if location.is_remote:
        if _configured is None:
            raise UserError(
                f"{location.archive}: shards at a URL are read through a cache on disk, and none is set up; "
                "`svt train` has data.cache_dir for it, other commands need the shards on disk: copy them here"
            )
        archive = _Archive(_configured.open(location.archive), _configured)
    else:
        try:
            archive = _local.get(location.archive)
        except FileNotFoundError as error:
            raise UserError(
                f"{location.archive}: there is no such shard, though shards.scp lists audio at byte {location.offset} "
                "of it; copy the data directory with all its shards, or write them again with `svt shard`"
            ) from error
        except OSError as error:
            raise UserError(f"{location.archive}: the shard cannot be opened ({error.strerror})") from error
    there = os.fstat(archive.descriptor).st_size
    if there < location.offset + location.size:
        archive.release()
        raise _too_short(location, max(there - location.offset, 0))
    return archive


def _read_at(archive: _Archive, location: ShardLocation, offset: int, count: int) -> bytes:
    """``count`` bytes from a position of the archive: one call as a rule, more where the system gives less."""
    try:
        content = read_at(archive.descriptor, count, offset)
        while len(content) < count:
            piece = read_at(archive.descriptor, count - len(content), offset + len(content))
            if not piece:
                raise _too_short(location, offset + len(content) - location.offset)
            content += piece
    except OSError as error:
        raise UserError(
            f"{location.archive}: {location.size} bytes at {location.offset} cannot be read ({error.strerror}); "
            "check the disk, and the shards with `sha256sum -c shards.sha256`"
        ) from error
    return content


def _too_short(location: ShardLocation, found: int) -> UserError:
    return UserError(
        f"{location.archive}: shards.scp lists {location.size} bytes of audio at byte {location.offset}, but {found} "
        "are there: the shard is cut off or another than the index was written for; find such shards with "
        "`sha256sum -c shards.sha256` and copy them again"
    )
