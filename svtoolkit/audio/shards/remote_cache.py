"""A folder of archives fetched from URLs: each is fetched whole and once, for all processes of the machine.

Its size is bounded, which fsspec's own caches are not. What was used longest ago goes first, and nothing goes that is
being read: a reader holds a shared lock on the archive, which the system takes back from a reader that dies. An archive
is written to ``fetching/`` first, under the lock ``fetching/<name>.lock``. Meanwhile the file of the lock has its size
(and takes no disk), so that two processes never count on the same space.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from svtoolkit.audio.shards.remote_source import LookupFailedError, TransferError, fetch_archive
from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.file_lock import NoLocksError, has_shared_locks, hold_lock, release_shared_lock, share_lock
from svtoolkit.system.output_folder import explain_full_disk
from svtoolkit.system.regular_file import check_regular

log = logging.getLogger(__name__)

DELAYS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before the second attempt to fetch an archive, before the third and so on."""

LOOKUPS = 3
"""Attempts in which the name of the server is not found: a resolver may take many seconds to say so."""

SPACE_LIMIT = 600.0
"""Seconds to wait until others no longer need their archives."""


class RemoteShards:
    """Archives at URLs, kept in a folder on disk. Holds no state but its settings: it can be forked and pickled.

    Args:
        cache_dir: folder of the cache, made if it is missing, on a local disk; it may hold nothing else.
        max_bytes: what the archives may take of the disk.
        checksums: URL -> SHA-256 in hexadecimal digits, for archives whose content is to be checked.

    Raises:
        UserError: ``max_bytes`` is below 1; a system without locks that readers share, as Windows.
    """

    def __init__(
        self, cache_dir: str | os.PathLike[str], max_bytes: int, checksums: Mapping[str, str] | None = None
    ) -> None:
        if max_bytes < 1:
            raise UserError(f"the cache of remote shards may hold {max_bytes} bytes, expected 1 or more")
        if not has_shared_locks():
            raise UserError(
                f"{cache_dir}: shards at a URL are read through a cache whose readers share locks, and this system has "
                "none, expected Linux or macOS; copy the data directory with its shards to a disk of this machine"
            )
        self.cache_dir = Path(cache_dir).absolute()
        self.max_bytes = max_bytes
        self.checksums = dict(checksums or {})

    def open(self, url: str) -> int:
        """Fetch an archive unless it is there, and keep it from being dropped.

        Returns:
            a descriptor for reading; once it is read, ``unlock`` it and close it.

        Raises:
            UserError: the archive cannot be fetched, is larger than the cache, finds no space in time or has another
                checksum; the disk is full; the cache is on a file system without locks.
            OSError: the cache cannot be written; names the file.
        """
        archive = self._place(url)
        descriptor = _open_shared(archive)
        if descriptor is not None:
            return descriptor
        partial = archive.parent / "fetching" / archive.name
        lock = partial.with_suffix(".lock")
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            with explain_full_disk(partial, "free some disk, or lower the bound of the cache"), hold_lock(lock):
                descriptor = _open_shared(archive)  # another process may have fetched it meanwhile
                return self._fetch(url, archive, partial, lock) if descriptor is None else descriptor
        except NoLocksError as error:
            raise UserError(
                f"{self.cache_dir}: the file system has no locks; choose a cache on a local disk"
            ) from error

    def unlock(self, descriptor: int) -> None:
        """The archive may be dropped again."""
        release_shared_lock(descriptor)

    def _place(self, url: str) -> Path:
        """Where an archive is kept; content with another checksum is another archive."""
        key = hashlib.sha256(f"{url} {self.checksums.get(url, '')}".encode()).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9._-]", "_", url.rpartition("/")[2])
        return self.cache_dir / f"{key}-{name[-64:]}"

    def _fetch(self, url: str, archive: Path, partial: Path, lock: Path) -> int:
        """A descriptor of an archive that was not there, locked before anyone could drop it."""
        try:
            self._download(url, partial, lock)
            checksum = self.checksums.get(url)
            if checksum is not None and (found := hash_file(partial)) != checksum.lower():
                raise UserError(
                    f"{url}: arrived with the SHA-256 {found}, expected {checksum}: it is damaged, or another than the "
                    "checksums were written for; upload it again, or copy its shards.scp and shards.sha256 again"
                )
            descriptor = os.open(partial, os.O_RDONLY)
            os.fsync(descriptor)
            share_lock(descriptor)
            os.replace(partial, archive)
            return descriptor
        finally:
            _release(lock)

    def _download(self, url: str, partial: Path, lock: Path) -> None:
        lookups = 0
        for attempt, delay in enumerate((*DELAYS, None), start=1):
            _release(lock)  # of the attempt before, or of a process that was killed: this one has the lock now
            try:
                return fetch_archive(url, partial, lambda size: self._reserve(url, size, lock))
            except TransferError as error:
                lookups += isinstance(error, LookupFailedError)
                if delay is None or lookups == LOOKUPS:
                    raise UserError(
                        f"{url}: could not be fetched in {attempt} attempts ({error}); check the network and "
                        "the address, then run the command again: what is fetched already is kept"
                    ) from error
                log.warning("%s: %s; another attempt in %g s", hide_credentials(url), error, delay)
                time.sleep(delay)

    def _reserve(self, url: str, size: int, lock: Path) -> None:
        """Take space for an archive, as soon as there is enough of it."""
        if size > self.max_bytes:
            raise UserError(
                f"{url}: has {size} bytes, more than the cache may hold ({self.max_bytes}); raise the bound, or write "
                "smaller shards"
            )
        limit = time.monotonic() + SPACE_LIMIT
        while True:
            with hold_lock(lock.with_name("all")):
                if self._make_space(size):
                    return os.truncate(lock, size)
            if time.monotonic() > limit:
                raise UserError(
                    f"{self.cache_dir}: no space for the {size} bytes of {url}: all else in the cache is in use; raise "
                    f"its bound, which is {self.max_bytes} bytes, or use fewer workers"
                )
            time.sleep(0.1)

    def _make_space(self, size: int) -> bool:
        """Drop what was used longest ago until there is space; whether there is. Under the lock of all."""
        found = []
        # Locks first: an archive that arrives meanwhile is counted twice rather than never.
        for path in (*self.cache_dir.glob("fetching/*.lock"), *self.cache_dir.glob("*.tar")):
            with suppress(FileNotFoundError):  # someone empties the cache by hand
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        total = size + sum(taken for _, taken, _ in found)
        for _, _, path in sorted(found):
            if total <= self.max_bytes:
                break
            with suppress(BlockingIOError), hold_lock(path, wait=False):  # else it is being read or fetched
                total -= path.stat().st_size
                if path.suffix == ".lock":  # of a process that was killed
                    _release(path)
                else:
                    path.unlink(missing_ok=True)
        return total <= self.max_bytes


def _release(lock: Path) -> None:
    """Give back the space of an archive that is not fetched any more, under its lock."""
    lock.with_suffix(".tar").unlink(missing_ok=True)
    os.truncate(lock, 0)


def _open_shared(archive: Path) -> int | None:
    """A descriptor with a shared lock on an archive of the cache, noted as used; None where it is not there."""
    check_regular(archive)
    try:
        descriptor = os.open(archive, os.O_RDONLY)
    except FileNotFoundError:
        return None
    share_lock(descriptor)
    if not os.fstat(descriptor).st_nlink:  # dropped between the first call and the second
        os.close(descriptor)
        return None
    os.utime(descriptor)
    return descriptor
