"""The official archives unpacked as the corpora are read: parts without joining them, resumed after any stop.

A member that has its name was written whole and flushed, and is not unpacked again. What becomes of the archives
themselves is left to who has the disk: nothing here deletes one.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import lzma
import os
import re
import shutil
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from svtoolkit.corpora.archive_sources import VOX2, Source
from svtoolkit.corpora.rehearsal import choose_speakers
from svtoolkit.corpora.voxceleb import VOXCELEB2
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.atomic_batch import atomic_batch
from svtoolkit.system.joined_file import JoinedFile
from svtoolkit.system.output_folder import explain_full_disk, hold_alone, remove_leftovers
from svtoolkit.system.threads import submit_ahead

log = logging.getLogger(__name__)

BATCH = 64
"""Members that are flushed to the disk together."""
BLOCK = 4096
"""Bytes that the space of a file is rounded up to."""
UNCOMPRESSED = 1.3
"""Bytes that a byte of a tar.gz of speech becomes; its length is known when it is read alone."""
RECORD, LOCK = "unpacked.json", ".unpacking.lock"


class Unpacking:
    """Archives on their way into a folder, which nothing else may write to meanwhile; a context manager.

    Args:
        out: gets a folder for each corpus; may hold a part of the same.
        limit_speakers: of VoxCeleb2 so many speakers alone, those that ``svt prepare`` takes as well.

    Attributes:
        bytes_left: about so many will be written.

    Raises:
        UserError: another process unpacks there.
    """

    def __init__(self, out: str | Path, limit_speakers: int | None = None) -> None:
        self.out, self.limit_speakers = Path(out), limit_speakers
        self.bytes_left = 0
        self._stack = ExitStack()

    def __enter__(self) -> Unpacking:
        with ExitStack() as stack:
            stack.enter_context(explain_full_disk(self.out))
            self.out.mkdir(parents=True, exist_ok=True)
            busy = f"{self.out}: another process unpacks there; wait for its end or choose another folder"
            self._alone = stack.enter_context(hold_alone(self.out / LOCK, busy=busy))
            path = self.out / RECORD
            self._record: list[Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._stack.__exit__(*error)

    def begin(self, sources: Sequence[Source]) -> list[Source]:
        """Those that are not unpacked to their end.

        Raises:
            UserError: the disk has less room than they need; nothing was written.
        """
        left = [source for source in sources if not self._is_unpacked(source)]
        self.bytes_left = sum(self._bytes_of(source) for source in left)
        free = shutil.disk_usage(self.out).free
        if self.bytes_left > free:
            raise UserError(
                f"{self.out}: unpacking writes about {self.bytes_left / 1e9:.1f} GB, and the disk has "
                f"{free / 1e9:.1f} GB free; free {(self.bytes_left - free) / 1e9:.1f} GB, or choose a folder of "
                "another disk"
            )
        if left:
            log.info("unpacking writes about %.1f GB; %.1f GB are free", self.bytes_left / 1e9, free / 1e9)
        return left

    def is_checked(self, file: Path) -> bool:
        """Whether an archive was compared with its checksum, as it is now."""
        return ["checked", _state(file)] in self._record

    def note_checked(self, files: Iterable[Path]) -> None:
        self._note(*(["checked", _state(file)] for file in files))

    def unpack(self, sources: Sequence[Source], *, jobs: int, progress: Callable[[int], object]) -> None:
        """Unpack what ``begin`` returned.

        Args:
            jobs: batches of a zip written at a time.
            progress: called with the bytes written since its last call; of a tar with those read.

        Raises:
            UserError: an archive is broken; a member would be written outside ``out``.
        """
        for source in sources:
            folder = self.out / source.corpus
            if self._alone:
                remove_leftovers(path for path, _, _ in os.walk(folder))
            log.info("%s -> %s", source.name, folder)
            if source.is_zip:
                self._unpack_zip(source, folder, jobs, progress)
            else:
                _unpack_tar(source, folder, progress)
            self._note(self._entry(source, self.limit_speakers))

    def _is_unpacked(self, source: Source) -> bool:
        return any(self._entry(source, limit) in self._record for limit in (None, self.limit_speakers))

    def _entry(self, source: Source, limit: int | None) -> list[Any]:
        states = [_state(file) for file in source.files]
        return ["unpacked", source.corpus, limit if source.corpus == VOX2 else None, states]

    def _note(self, *entries: list[Any]) -> None:
        self._record += entries
        with atomic_write(self.out / RECORD) as stream:
            json.dump(self._record, stream, indent=1)

    def _bytes_of(self, source: Source) -> int:
        if not source.is_zip:
            return int(UNCOMPRESSED * source.files[0].stat().st_size)
        with _open_zip(source) as archive:
            return sum(-(-size // BLOCK) * BLOCK for _, size in self._missing(archive, source))

    def _missing(self, archive: zipfile.ZipFile, source: Source) -> list[tuple[str, int]]:
        """Name and size of the members that are wanted and not there."""
        members = [(info.filename, info.file_size) for info in archive.infolist() if not info.is_dir()]
        for name, _ in members:
            _check_name(name, source)
        if self.limit_speakers is not None and source.corpus == VOX2:
            speakers = {_speaker_of(name) for name, _ in members} - {""}
            chosen = choose_speakers((name for name in speakers if not VOXCELEB2.is_test(name)), self.limit_speakers)
            members = [member for member in members if _speaker_of(member[0]) in chosen]
        folder = self.out / source.corpus
        return [member for member in members if not _is_there(folder / member[0], member[1])]

    def _unpack_zip(self, source: Source, folder: Path, jobs: int, progress: Callable[[int], object]) -> None:
        with _open_zip(source) as archive, ThreadPoolExecutor(jobs) as pool:
            left = iter(self._missing(archive, source))
            batches = iter(lambda: [name for name, _ in islice(left, BATCH)], [])
            work = partial(_unpack_batch, archive, source, folder, threading.Lock())
            try:
                for written in submit_ahead(pool, work, batches, 2 * jobs):
                    progress(written)
            finally:
                pool.shutdown(cancel_futures=True)


def _state(file: Path) -> list[Any]:
    """What tells whether it is the archive that it was before."""
    status = file.stat()
    return [file.name, status.st_size, status.st_mtime_ns]


@contextmanager
def _open_zip(source: Source) -> Iterator[zipfile.ZipFile]:
    with io.BufferedReader(JoinedFile(source.files), 1 << 20) as stream:
        try:
            archive = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, OSError) as error:
            raise _broken(source, error) from error
        with archive:
            yield archive


def _check_name(name: str, source: Source) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise UserError(f"{source.name}: its member {name!r} lies outside the archive; download the archive again")


def _speaker_of(name: str) -> str:
    return next((part for part in PurePosixPath(name).parts if re.fullmatch(r"id\d{5}", part)), "")


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _unpack_batch(
    archive: zipfile.ZipFile, source: Source, folder: Path, lock: threading.Lock, names: Collection[str]
) -> int:
    """Write some members; returns their bytes. The archive is read by one thread at a time, files by many."""
    written = 0
    with atomic_batch() as write:
        for name in names:
            try:
                with lock:
                    content = archive.read(name)
            except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
                raise _broken(source, error) from error
            write(str(folder / name), content)
            written += len(content)
    return written


def _unpack_tar(source: Source, folder: Path, progress: Callable[[int], object]) -> None:
    """A compressed tar has no list of its members: it is read from end to end, and what is there is not written.

    Its checksum stands at its end: where it is wrong, what was written is deleted again.
    """
    written: list[Path] = []
    try:
        with gzip.open(source.files[0]) as content, tarfile.open(fileobj=content, mode="r|") as archive:
            members = (member for member in archive if member.isfile())
            while batch := _write_some(archive, source, islice(members, BATCH), folder, written):
                progress(batch)
            while content.read(1 << 20):
                pass
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise _broken(source, error) from error


def _write_some(
    archive: tarfile.TarFile,
    source: Source,
    members: Iterator[tarfile.TarInfo],
    folder: Path,
    written: list[Path],
) -> int:
    """Write the next members; returns the bytes that they have, 0 at the end."""
    seen = 0
    with atomic_batch() as write:
        for member in members:
            seen += max(1, member.size)
            _check_name(member.name, source)
            stream = archive.extractfile(member)
            if stream is not None and not _is_there(folder / member.name, member.size):
                write(str(folder / member.name), stream.read())
                written.append(folder / member.name)
    return seen


def _broken(source: Source, error: Exception) -> UserError:
    return UserError(
        f"{source.name}: cannot be unpacked ({error}); compare it with its published checksum (`svt archives "
        f"{source.files[0].parent}`), and download it again"
    )
