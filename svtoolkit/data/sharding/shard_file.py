"""One shard: its archive, and the record by which a later run knows it to be whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from svtoolkit.config import ShardConfig
from svtoolkit.data.archive_writer import ArchiveKind, ArchiveRecord, ArchiveTask, write_archive
from svtoolkit.data.bad_files import BadFile
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.data.shard_index import INDEX
from svtoolkit.data.shard_members import ShardStream, describe, member_key
from svtoolkit.data.sharding.encoding import DESCRIPTION, encode_utterance
from svtoolkit.errors import UserError

SHARDS = ArchiveKind(
    unit="shard",
    content="shards",
    work="writing shards",
    records=".shards",
    stem="shard",
    extension="tar",
    last=INDEX,
    foreign=(INDEX, "wav.scp", "segments"),
)


@dataclass(frozen=True)
class ShardEntry:
    """Audio of one utterance: offset and size in bytes, length in seconds."""

    offset: int
    size: int
    seconds: float


@dataclass
class ShardRecord(ArchiveRecord[ShardEntry]):
    """What a shard holds.

    Attributes:
        sha256: of the archive, in hexadecimal digits.
    """

    entry_type = ShardEntry

    sha256: str = ""


@dataclass(frozen=True)
class ShardTask(ArchiveTask):
    """The utterances of one shard."""

    kind = SHARDS
    record_type = ShardRecord

    settings: ShardConfig


def make_shard(task: ShardTask) -> ShardRecord:
    """Write the archive, then its record; both are whole or not there."""
    made = ShardRecord()

    def fill(stream: IO[bytes]) -> Iterator[None]:
        shard = ShardStream(stream)
        for utterance in task.utterances:
            _add(shard, utterance, task.settings, made)
            yield
        if made.entries:
            shard.finish()
            made.size, made.sha256 = shard.size, shard.sha256

    return write_archive(task, made, fill)


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
