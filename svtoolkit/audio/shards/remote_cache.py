"""A folder of archives fetched from URLs: each is fetched whole and once, for all processes of the machine.

Room is bounded. What was used longest ago goes first, and nothing goes that is being read: a reader holds a shared
lock on the archive itself, so that the system takes the lock back from a reader that dies. An archive that is being
fetched has its full size from the beginning (a sparse file), so that two processes never count on the same room.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from svtoolkit.audio.shards.remote_source import RemoteArchive, TransferError, open_remote
from svtoolkit.errors import UserError
from svtoolkit.system.file_lock import NoLocksError, hold_lock

log = logging.getLogger(__name__)

ATTEMPTS = 5
FIRST_DELAY = 1.0
"""Seconds before the second attempt; the delay doubles with each."""

BLOCK = 1 << 20
"""Bytes fetched at a time."""

USED_AGAIN = 1.0
"""Seconds after which another use of an archive is worth noting."""

ROOM_LIMIT = 600.0
"""Seconds to wait for archives in use to make room."""

PARTIAL = ".part"


class RemoteShards:
    """Archives at URLs by way of a folder on disk. Holds no state but its settings: it can be forked and pickled.

    Args:
        cache_dir: folder of the cache, made if it is missing; for nothing else, and on a local disk.
        max_bytes: what the archives may take of the disk.
        checksums: URL -> SHA-256 in hexadecimal digits, for archives whose content is to be checked.

    Raises:
        UserError: ``max_bytes`` is below 1.
    """

    def __init__(
        self, cache_dir: str | os.PathLike[str], max_bytes: int, checksums: Mapping[str, str] | None = None
    ) -> None:
        if max_bytes < 1:
            raise UserError(f"the cache of remote shards may hold {max_bytes} bytes, expected 1 or more")
        self.cache_dir = Path(cache_dir).absolute()
        self.max_bytes = max_bytes
        self.checksums = dict(checksums or {})

    def local_path(self, url: str) -> Path:
        """Fetch an archive unless it is there; whoever opens the path later may find it thrown out (see ``open``).

        Raises:
            UserError: as ``open``.
        """
        descriptor = self.open(url)
        self.unlock(descriptor)
        os.close(descriptor)
        return self._place(url)

    def open(self, url: str) -> int:
        """Fetch an archive unless it is there, and keep it from being thrown out.

        Returns:
            a descriptor for reading, to be handed to ``unlock`` when it is read and then to be closed.

        Raises:
            UserError: the archive cannot be fetched, is larger than the cache, finds no room in time or has another
                checksum.
            OSError: the cache cannot be written; names the file.
        """
        place = self._place(url)
        descriptor = _open_shared(place)
        if descriptor is not None:
            return descriptor
        (self.cache_dir / "locks").mkdir(parents=True, exist_ok=True)
        try:
            with hold_lock(self._lock(place.name)):
                descriptor = _open_shared(place)  # another process may have fetched it meanwhile
                return self._fetch(url, place) if descriptor is None else descriptor
        except NoLocksError as error:
            raise UserError(
                f"{self.cache_dir}: the file system has no locks, without which processes cannot share the cache; "
                "choose a folder on a local disk"
            ) from error

    def unlock(self, descriptor: int) -> None:
        """The archive may be thrown out again."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _place(self, url: str) -> Path:
        """Where an archive is kept; content with another checksum is another archive."""
        key = hashlib.sha256(f"{url} {self.checksums.get(url, '')}".encode()).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9._-]", "_", url.rpartition("/")[2])
        return self.cache_dir / f"{key}-{name[-64:]}"

    def _lock(self, name: str) -> Path:
        return self.cache_dir / "locks" / name

    def _fetch(self, url: str, place: Path) -> int:
        reason: TransferError | None = None
        for attempt in range(ATTEMPTS):
            if reason is not None:
                delay = FIRST_DELAY * 2 ** (attempt - 1)
                log.warning("%s: %s; another attempt in %g s", url, reason, delay)
                time.sleep(delay)
            try:
                with open_remote(url) as archive:
                    return self._store(url, archive, place)
            except TransferError as error:
                reason = error
        raise UserError(
            f"{url}: could not be fetched in {ATTEMPTS} attempts ({reason}); check the network and the address, then "
            "run the command again: what is fetched already is kept"
        ) from reason

    def _store(self, url: str, archive: RemoteArchive, place: Path) -> int:
        """Write an archive into the cache; the descriptor comes locked, before anyone could throw it out."""
        if archive.size > self.max_bytes:
            raise UserError(
                f"{url}: has {archive.size} bytes, more than the cache may hold ({self.max_bytes}); raise the bound, "
                "or write smaller shards"
            )
        partial = place.with_name(place.name + PARTIAL)
        with _named(partial):
            partial.unlink(missing_ok=True)  # of a process that was killed: this one has the lock now
            descriptor = self._reserve(archive.size, partial, url)
            try:
                self._copy(url, archive, descriptor)
                os.fsync(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                os.replace(partial, place)
            except BaseException:
                partial.unlink(missing_ok=True)
                os.close(descriptor)
                raise
        return descriptor

    def _copy(self, url: str, archive: RemoteArchive, descriptor: int) -> None:
        checksum = self.checksums.get(url)
        digest, count = hashlib.sha256(), 0
        while block := archive.read(BLOCK):
            digest.update(block)
            count += len(block)
            if count > archive.size:
                break
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        if count != archive.size:
            raise TransferError(f"{count} bytes came, {archive.size} were announced")
        if checksum is not None and digest.hexdigest() != checksum.lower():
            raise UserError(
                f"{url}: arrived with the SHA-256 {digest.hexdigest()}, expected {checksum}: it is damaged, or another "
                "than the checksums were written for; upload it again, or copy its shards.scp and shards.sha256 again"
            )

    def _reserve(self, size: int, partial: Path, url: str) -> int:
        """A new file of the size of the archive, opened for writing, as soon as there is room for it."""
        limit = time.monotonic() + ROOM_LIMIT
        while True:
            with hold_lock(self._lock("room")):
                if self._make_room(size):
                    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
                    os.ftruncate(descriptor, size)
                    return descriptor
            if time.monotonic() > limit:
                raise UserError(
                    f"{self.cache_dir}: no room for the {size} bytes of {url}: all else in the cache is in use; raise "
                    f"its bound, which is {self.max_bytes} bytes, or use fewer workers"
                )
            time.sleep(0.1)

    def _make_room(self, size: int) -> bool:
        """Throw out archives, those used longest ago first, until there is room; whether there is. Under the lock."""
        total, archives = 0, []
        for path in self.cache_dir.iterdir():
            if path.name == "locks" or (path.suffix == PARTIAL and self._drop_orphan(path)):
                continue
            try:
                status = path.stat()
            except FileNotFoundError:  # a transfer that ended meanwhile
                continue
            total += status.st_size
            if path.suffix != PARTIAL:
                archives.append((status.st_mtime_ns, status.st_size, path))
        for _, freed, path in sorted(archives):
            if total + size <= self.max_bytes:
                break
            if _drop_unused(path):
                log.debug("%s: thrown out to make room", path)
                total -= freed
        return total + size <= self.max_bytes

    def _drop_orphan(self, partial: Path) -> bool:
        """Delete what a transfer left that was killed; whether it was one."""
        try:
            with hold_lock(self._lock(partial.name.removesuffix(PARTIAL)), wait=False):
                partial.unlink(missing_ok=True)
                return True
        except BlockingIOError:
            return False


def _open_shared(place: Path) -> int | None:
    """A descriptor with a shared lock on an archive of the cache, noted as used; None where it is not there."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        status = os.fstat(descriptor)
        if status.st_nlink:
            if time.time() - status.st_mtime > USED_AGAIN:
                os.utime(descriptor)
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)  # thrown out between the first call and the second
    return None


def _drop_unused(path: Path) -> bool:
    """Delete an archive unless a reader holds it; whether it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # someone empties the cache by hand
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A full disk does not say which file it was, and the remedy is another than for the network."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"{path}: {error.strerror}; free some disk, or lower the bound of the cache of remote shards"
            ) from error
        raise
