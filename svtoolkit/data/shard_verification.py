"""Whether shards are what their index and their checksums say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tarfile import BLOCKSIZE

from svtoolkit.audio.shards.location import ShardLocation
from svtoolkit.data.shard_index import CHECKSUMS, INDEX, parse_shard_index, read_checksums
from svtoolkit.data.shard_members import explain_header
from svtoolkit.data.tables import MISSING_TABLE, Fault, read_table
from svtoolkit.errors import UserError
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.positioned_read import read_at
from svtoolkit.system.regular_file import check_regular, is_regular
from svtoolkit.system.threads import map_in_order

AGAIN = "copy the shard again from where it is whole, or write it again with `svt shard`"


@dataclass
class _Archive:
    """What is claimed about an archive: by the index (utterance -> line, location) and by the checksums."""

    path: Path
    entries: dict[str, tuple[int, ShardLocation]] = field(default_factory=dict)
    digest: tuple[int, str] | None = None


def verify_shards(folder: str | Path, *, jobs: int = 1) -> list[Fault]:
    """Check the archives of a data directory against `shards.scp` and `shards.sha256`.

    Every archive is read once; every entry of the index must lie inside its archive, right behind a tar header with
    the name of its utterance and its size. Archives at a URL cannot be checked here and are a fault.

    Args:
        folder: the data directory.
        jobs: archives read at a time; the result does not depend on it.

    Returns:
        all faults: of the tables, then archive by archive.

    Raises:
        UserError: there is no such folder, or ``jobs`` is below 1.
    """
    base = Path(folder)
    if not base.is_dir():
        raise UserError(f"{base}: there is no such data directory; expected a folder with {INDEX} and its shards")
    faults: list[Fault] = []
    pointless = set()
    for name, purpose, code in (
        (INDEX, "finds the utterances in the shards", "unlisted-shard"),
        (CHECKSUMS, "shows damaged shards", "no-checksum"),
    ):
        if not is_regular(base / name):
            message = f"the file is missing, which {purpose}; copy it, or write the shards again with `svt shard`"
            faults.append(Fault(MISSING_TABLE, name, message))
            pointless.add(code)
    archives = sorted(_collect(base, faults).items())
    for found in map_in_order(lambda item: _check_archive(*item), archives, jobs):
        faults += [fault for fault in found if fault.code not in pointless]
    return faults


def _collect(base: Path, faults: list[Fault]) -> dict[str, _Archive]:
    """Every archive that is in the index, the checksums or the folder, by its name in the tables."""
    table = read_table(base / INDEX, faults)
    locations = parse_shard_index(table, faults, base)
    archives: dict[str, _Archive] = {}
    for utterance, location in locations.items():
        name = _name_of(location.archive, base)
        archive = archives.setdefault(name, _Archive(Path(location.archive)))
        archive.entries[utterance] = (table[utterance][0], location)
    for name, digest in read_checksums(base, faults).items():
        archives.setdefault(name, _Archive(base / name)).digest = digest
    for path in base.glob("*.tar"):
        archives.setdefault(path.name, _Archive(path))
    return archives


def _name_of(archive: str, base: Path) -> str:
    """As the checksums name it: relative to the data directory where it lies below it."""
    path = Path(archive)
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else archive


def _check_archive(name: str, archive: _Archive) -> list[Fault]:
    line, location = min(archive.entries.values(), key=lambda entry: entry[0], default=(0, None))
    if location is not None and location.is_remote:
        message = f"{name} is at a URL; check it where it lies, with `sha256sum -c {CHECKSUMS}`"
        return [Fault("remote-shard", f"{INDEX}:{line}", message)]
    try:
        check_regular(archive.path)
    except UserError as error:
        return [Fault("unreadable-shard", name, str(error))]
    if not os.path.exists(archive.path):
        where = f"{INDEX}:{line}" if location else f"{CHECKSUMS}:{archive.digest[0] if archive.digest else 0}"
        lost = f", and with it the audio of {len(archive.entries)} utterances" if location else ""
        return [Fault("missing-shard", where, f"there is no file {archive.path}{lost}; {AGAIN}")]
    try:
        digest = hash_file(archive.path)
        with archive.path.open("rb", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            return [*_check_whole(name, archive, digest, size), *_check_entries(stream.fileno(), archive.entries, size)]
    except OSError as error:
        return [Fault("unreadable-shard", name, f"the file cannot be read ({error.strerror}); {AGAIN}")]


def _check_whole(name: str, archive: _Archive, digest: str, size: int) -> list[Fault]:
    faults = []
    if not archive.entries:
        message = f"{INDEX} lists no utterance in it; delete the file if nothing else uses it, or copy the whole index"
        faults.append(Fault("unlisted-shard", name, message))
    if size < BLOCKSIZE:
        faults.append(Fault("empty-shard", name, f"the file has {size} bytes and holds no member; {AGAIN}"))
    elif archive.digest is None:
        message = f"its digest is not in {CHECKSUMS}, so that damage would not show; copy the whole list"
        faults.append(Fault("no-checksum", name, message))
    elif archive.digest[1] != digest:
        message = f"{name} has the digest {digest}, expected {archive.digest[1]}: it is damaged or another; {AGAIN}"
        faults.append(Fault("checksum", f"{CHECKSUMS}:{archive.digest[0]}", message))
    return faults


def _check_entries(descriptor: int, entries: Mapping[str, tuple[int, ShardLocation]], size: int) -> list[Fault]:
    faults = []
    for utterance, (line, location) in sorted(entries.items()):
        where, end = f"{INDEX}:{line}", location.offset + location.size
        if end > size:
            message = (
                f"{utterance!r} ends at byte {end} of {location.archive}, which has {size}: it is cut off; {AGAIN}"
            )
            faults.append(Fault("beyond-shard", where, message, utterance))
            continue
        start = location.offset - BLOCKSIZE
        problem = explain_header(read_at(descriptor, BLOCKSIZE, start) if start >= 0 else b"", utterance, location.size)
        if problem is not None:
            message = (
                f"byte {location.offset} of {location.archive} is not the audio of {utterance!r}: {problem}; the index "
                "belongs to another shard: copy both again, or write them again with `svt shard`"
            )
            faults.append(Fault("wrong-member", where, message, utterance))
    return faults
