"""One shard: its archive, and the record by which a later run knows it to be whole."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path

from svtoolkit.config import ShardConfig
from svtoolkit.data.bad_files import BadFile
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.data.shard_members import ShardStream, describe, member_key
from svtoolkit.data.sharding.encoding import DESCRIPTION, encode_utterance
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write

log = logging.getLogger(__name__)

RECORDS = ".shards"
"""Folder of the records inside the directory that is written; not needed to read it."""


@dataclass(frozen=True)
class ShardEntry:
    """Audio of one utterance: offset and size in bytes, length in seconds."""

    offset: int
    size: int
    seconds: float


@dataclass
class ShardRecord:
    """What a shard holds.

    Attributes:
        size: bytes of the archive; 0 where no utterance was left and none was written.
        sha256: of the archive, in hexadecimal digits.
        entries: utterance -> where its audio lies, in the order of the archive.
        bad: utterances left out.
    """

    size: int = 0
    sha256: str = ""
    entries: dict[str, ShardEntry] = field(default_factory=dict)
    bad: list[BadFile] = field(default_factory=list)


@dataclass(frozen=True)
class ShardTask:
    """The utterances of one shard: the unit of work of a process.

    Attributes:
        bad_allowed: bad files above which all of the work fails, so that the task can stop.
    """

    out: Path
    number: int
    utterances: tuple[Utterance, ...]
    settings: ShardConfig
    bad_allowed: int

    @property
    def archive(self) -> Path:
        return self.out / f"shard-{self.number:06d}.tar"

    @property
    def record(self) -> Path:
        return self.out / RECORDS / f"shard-{self.number:06d}.json"


def make_shard(task: ShardTask) -> ShardRecord:
    """Write the archive, then its record; both are whole or not there.

    Returns:
        what the shard holds. With more bad files than are allowed, nothing is written.
    """
    made = ShardRecord()
    task.record.unlink(missing_ok=True)
    try:
        with atomic_write(task.archive, "wb") as stream:
            shard = ShardStream(stream)
            for utterance in task.utterances:
                _add(shard, utterance, task.settings, made)
                if len(made.bad) > task.bad_allowed:
                    raise _NotWrittenError
            if not made.entries:
                raise _NotWrittenError
            shard.finish()
        made.size, made.sha256 = shard.size, shard.sha256
    except _NotWrittenError:
        task.archive.unlink(missing_ok=True)
        if len(made.bad) > task.bad_allowed:
            return made
    with atomic_write(task.record) as record:
        json.dump(asdict(made), record, ensure_ascii=False)
    return made


def read_record(task: ShardTask) -> ShardRecord | None:
    """The record of a shard that is whole and holds these utterances; None, with a warning, where it is not."""
    if not task.record.is_file():
        return None
    try:
        plain = json.loads(task.record.read_text(encoding="utf-8"))
        found = ShardRecord(
            plain["size"],
            plain["sha256"],
            {utterance: ShardEntry(**entry) for utterance, entry in plain["entries"].items()},
            [BadFile(**bad) for bad in plain["bad"]],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        log.warning("%s: is no record of a shard; the shard is made again", task.record)
        return None
    size = task.archive.stat().st_size if task.archive.is_file() else 0
    planned = {utterance.utterance_id for utterance in task.utterances}
    if planned != {*found.entries, *(bad.utterance_id for bad in found.bad)}:
        log.warning("%s: is the record of other utterances; the shard is made again", task.record)
        return None
    if size != found.size:
        log.warning("%s: has %d bytes, was written with %d; it is made again", task.archive, size, found.size)
        return None
    return found


class _NotWrittenError(Exception):
    """Leaves the archive that is being written without giving it its name."""


def _add(shard: ShardStream, utterance: Utterance, settings: ShardConfig, made: ShardRecord) -> None:
    name = utterance.utterance_id
    try:
        encoded = encode_utterance(utterance, settings)
    except UserError as error:
        made.bad.append(BadFile(name, str(utterance.path), str(error)))
        return
    key = member_key(name)
    offset = shard.add(f"{key}.{encoded.extension}", encoded.content)
    made.entries[name] = ShardEntry(offset, len(encoded.content), encoded.seconds)
    shard.add(f"{key}.{DESCRIPTION}", describe(name, utterance.speaker, encoded.seconds, encoded.sample_rate))
