"""Archives that several processes write into a folder, so that a stop costs one archive each: shards and features."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, ClassVar, Generic, TypeVar

from svtoolkit.data.bad_files import BadFile, listing_bad_files
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError, without_credentials
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.output_folder import claim_folder, explain_full_disk, hold_alone, remove_leftovers
from svtoolkit.system.processes import map_unordered

log = logging.getLogger(__name__)

MADE_OF = "made_of.json"


@dataclass(frozen=True)
class ArchiveKind:
    """What tells one kind of archives from another.

    Attributes:
        unit: an archive in messages: shard.
        content: what the folder is filled with: shards.
        work: what a process does there: writing shards.
        records: folder of the records inside the directory that is written; not needed to read it.
        stem, extension: of the archives' names, with a number between them.
        last: the table that is written last: where it is, the directory is whole.
        foreign: tables of a folder that is no folder of such archives.
    """

    unit: str
    content: str
    work: str
    records: str
    stem: str
    extension: str
    last: str
    foreign: tuple[str, ...]

    def archives(self, folder: Path) -> list[Path]:
        return sorted(folder.glob(f"{self.stem}-*.{self.extension}"))


Entry = TypeVar("Entry")


@dataclass
class ArchiveRecord(Generic[Entry]):
    """What an archive holds.

    Attributes:
        size: bytes of the archive; 0 where no utterance was left and none was written.
        entries: utterance -> where it lies, in the order of the archive.
        bad: utterances left out.
    """

    entry_type: ClassVar[type[Any]]

    size: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    bad: list[BadFile] = field(default_factory=list)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> ArchiveRecord[Entry]:
        """From its JSON; KeyError, TypeError or AttributeError where that is another's."""
        content = {item.name: plain[item.name] for item in fields(cls)}
        content["entries"] = {name: cls.entry_type(**entry) for name, entry in plain["entries"].items()}
        content["bad"] = [BadFile(**bad) for bad in plain["bad"]]
        return cls(**content)

    @property
    def utterances(self) -> int:
        """With those that were left out."""
        return len(self.entries) + len(self.bad)


@dataclass(frozen=True)
class ArchiveTask:
    """The utterances of one archive: the unit of work of a process.

    Attributes:
        bad_allowed: bad files above which all of the work fails, so that the task can stop.
    """

    kind: ClassVar[ArchiveKind]
    record_type: ClassVar[type[Any]]

    out: Path
    number: int
    utterances: tuple[Utterance, ...]
    bad_allowed: int

    @property
    def archive(self) -> Path:
        return self.out / f"{self.kind.stem}-{self.number:06d}.{self.kind.extension}"

    @property
    def record(self) -> Path:
        return self.out / self.kind.records / f"{self.kind.stem}-{self.number:06d}.json"

    def newer_source(self) -> str | None:
        """A file that the archive was made of and that has changed since; None: none, or it does not matter."""
        return None


Task = TypeVar("Task", bound=ArchiveTask)
Record = TypeVar("Record", bound=ArchiveRecord[Any])


def write_archive(task: ArchiveTask, made: Record, fill: Callable[[IO[bytes]], Iterable[None]]) -> Record:
    """Write the archive, then its record; both are whole or not there.

    Args:
        made: what the archive holds, filled on the way.
        fill: writes an archive, one utterance at a time, into ``made`` as well.

    Returns:
        ``made``. With more bad files than are allowed, nothing is written.
    """
    task.record.unlink(missing_ok=True)
    try:
        with atomic_write(task.archive, "wb") as stream:
            for _ in fill(stream):
                if len(made.bad) > task.bad_allowed:
                    raise _NotWrittenError
            if not made.entries:
                raise _NotWrittenError
    except _NotWrittenError:
        task.archive.unlink(missing_ok=True)
        if len(made.bad) > task.bad_allowed:
            return made
    with atomic_write(task.record) as record:
        json.dump(without_credentials(asdict(made)), record, ensure_ascii=False)
    return made


class _NotWrittenError(Exception):
    """Leaves the archive that is being written without giving it its name."""


def fill_folder(
    tasks: Sequence[Task],
    make: Callable[[Task], Record],
    write_tables: Callable[[Mapping[int, Record]], None],
    *,
    made_of: Mapping[str, object],
    max_bad: float,
    jobs: int,
    progress: Callable[[int], object] | None,
) -> tuple[list[Record], int]:
    """Make the archives that are missing, and then the tables.

    What has files that could not be used is tried again as long as the last table is not there.

    Args:
        tasks: one an archive, in order; at least one.
        make: called in a process of its own where there are several ``jobs``.
        write_tables: from the record of each number; writes the table that ``ArchiveKind.last`` names last.
        made_of: all options that the archives depend on, the utterances aside.
        max_bad: share of the utterances that may be left out.
        progress: called with the number of utterances finished since its last call.

    Returns:
        the records, and how many of them an earlier run had left.

    Raises:
        UserError: a folder that holds something else or is being written; too many bad files; a full disk; a process
            that died. What is finished is kept.
    """
    folder, kind = tasks[0].out, tasks[0].kind
    whole = {**made_of, "utterances": _digest([utterance for task in tasks for utterance in task.utterances])}
    with explain_full_disk(folder), _claim(folder, kind, whole):
        last = folder / kind.last
        found = {task.number: read_record(task) for task in tasks}
        records = {number: record for number, record in found.items() if record and (last.is_file() or not record.bad)}
        reused = len(records)
        for record in records.values():
            _tell(progress, record)
        if reused == len(tasks) and last.is_file():
            log.info("%s: all %ss are there", folder, kind.unit)
        else:
            last.unlink(missing_ok=True)
            _make_missing(tasks, make, records, max_bad, jobs, progress)
            write_tables(records)
    bad = [item for record in records.values() for item in record.bad]
    if bad:
        log.warning("%d utterances are left out for bad audio; the first: %s", len(bad), bad[0].reason)
    return list(records.values()), reused


def read_record(task: ArchiveTask) -> Any:
    """The record of an archive that is whole and holds these utterances; None, with a warning, where it is not."""
    if not task.record.is_file():
        return None
    unit = task.kind.unit
    try:
        found = task.record_type.of(json.loads(task.record.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        article = "an" if unit[0] in "aeiou" else "a"
        log.warning("%s: is no record of %s %s; the %s is made again", task.record, article, unit, unit)
        return None
    size = task.archive.stat().st_size if task.archive.is_file() else 0
    planned = {utterance.utterance_id for utterance in task.utterances}
    if planned != {*found.entries, *(bad.utterance_id for bad in found.bad)}:
        log.warning("%s: is the record of other utterances; the %s is made again", task.record, unit)
        return None
    if size != found.size:
        log.warning("%s: has %d bytes, was written with %d; it is made again", task.archive, size, found.size)
        return None
    changed = task.newer_source() if size else None
    if changed is not None:
        log.warning("%s: is older than %s; it is made again", task.archive, changed)
        return None
    return found


@contextmanager
def _claim(folder: Path, kind: ArchiveKind, made_of: Mapping[str, object]) -> Iterator[None]:
    """Hold the folder for this process alone, and refuse to mix what was made of something else with what is made."""
    records = folder / kind.records
    if not (records / MADE_OF).is_file():
        foreign = [folder / name for name in kind.foreign if (folder / name).exists()] + kind.archives(folder)
        if foreign:
            raise UserError(f"{foreign[0]}: the folder holds data already; choose another one for the {kind.content}")
    records.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process is {kind.work} there; wait for it or stop it"
    with hold_alone(records / "lock", busy=busy) as alone:
        is_empty = alone and not kind.archives(folder)
        claim_folder(records / MADE_OF, made_of, content=f"{kind.content} made of", is_empty=is_empty)
        if alone:
            remove_leftovers([folder, records])
        yield


def _make_missing(
    tasks: Sequence[Task],
    make: Callable[[Task], Record],
    records: dict[int, Record],
    max_bad: float,
    jobs: int,
    progress: Callable[[int], object] | None,
) -> None:
    """Make archives and add what they hold to the records; lists the bad files even where they are too many."""
    utterances = sum(len(task.utterances) for task in tasks)
    killed = (
        f"{tasks[0].out}: a worker process was killed, probably because memory ran out; finished {tasks[0].kind.unit}s "
        "are kept: run the same command again, with fewer jobs"
    )
    with listing_bad_files(tasks[0].out, utterances, max_bad) as bad:
        for record in records.values():
            bad.add(record.bad)
        missing = [task for task in tasks if task.number not in records]
        with closing(map_unordered(make, missing, jobs, killed=killed)) as made:
            for task, record in made:
                records[task.number] = record
                _tell(progress, record)
                bad.add(record.bad)


def _digest(utterances: Sequence[Utterance]) -> str:
    """Tells one list of utterances from another: ids, speakers, files and stretches, in their order."""
    digest = hashlib.sha256()
    for item in utterances:
        stretch = None if item.whole_file else (item.offset, item.duration)
        digest.update(f"{(item.utterance_id, item.speaker, str(item.path), stretch)!r}\n".encode())
    return digest.hexdigest()


def _tell(progress: Callable[[int], object] | None, record: ArchiveRecord[Any]) -> None:
    if progress is not None:
        progress(record.utterances)
