"""Writing a data directory's audio into tar shards, by several processes, so that a stop costs one shard each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svtoolkit.config import ShardConfig
from svtoolkit.data.archive_writer import fill_folder
from svtoolkit.data.bad_files import BAD_FILES, BadFile, check_max_bad, count_allowed
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.data.sharding.directory import carry_tables, write_index
from svtoolkit.data.sharding.encoding import FORMATS, extension_of
from svtoolkit.data.sharding.shard_file import ShardRecord, ShardTask, make_shard
from svtoolkit.errors import UserError

LAYOUT = 1  # of archives and tables: raise it with any change that gives the same input other bytes
ORDERS = ("shuffled", "sorted")


@dataclass(frozen=True)
class Sharding:
    """What `write_shards` did.

    Attributes:
        shards: archives that are there.
        reused: of these, how many an earlier run had finished.
        utterances: in the archives.
        seconds: of their audio.
        bad: utterances that were left out.
    """

    shards: int
    reused: int
    utterances: int
    seconds: float
    bad: list[BadFile]


def write_shards(
    kaldi_dir: KaldiDir,
    out: str | Path,
    *,
    tables_from: str | Path | None = None,
    progress: Callable[[int], object] | None = None,
    **options: Any,
) -> Sharding:
    """Write a data directory whose audio lies in tar shards, or what is missing of it.

    The bytes depend on the utterances and the options alone, neither on ``jobs`` nor on how often a run was stopped.
    Finished shards are recorded in `<out>/.shards`; what has files that could not be used is tried again as long as
    `shards.scp`, which is written last, is not there.

    Args:
        kaldi_dir: the utterances; those that are stretches of a recording are cut (flac).
        out: folder of the shards: empty, new, or left by a run with the same options over the same utterances.
        tables_from: data directory whose trial lists and further tables are taken over.
        progress: called with the number of utterances finished since its last call.
        options: other fields of ``ShardConfig``, such as ``per_shard``; with several ``jobs``, a script must call this
            under ``if __name__ == "__main__"``.

    Raises:
        UserError: impossible options, a folder that holds something else or is being written, too many bad files
            (all found so far are in `bad_files.tsv`), a full disk.
    """
    config = ShardConfig(out=str(out), **options)
    _check_options(config)
    utterances = kaldi_dir.utterances()
    _check_utterances(utterances, config.format)
    folder = Path(out)
    made_of = {"layout": LAYOUT, "audio_format": config.format}
    made_of |= {name: getattr(config, name) for name in ("sample_rate", "channel", "resample", "per_shard", "order")}
    if config.order == "shuffled":
        made_of["seed"] = config.seed
        utterances.sort(key=lambda utterance: _rank(config.seed, utterance.utterance_id))
    allowed = count_allowed(config.max_bad, len(utterances))
    tasks = [
        ShardTask(folder, number, tuple(utterances[start : start + config.per_shard]), allowed, config)
        for number, start in enumerate(range(0, len(utterances), config.per_shard))
    ]

    def write_tables(records: Mapping[int, ShardRecord]) -> None:
        kept = {utterance: kaldi_dir.utt2spk[utterance] for record in records.values() for utterance in record.entries}
        if not kept:
            raise UserError(f"{folder}: no utterance is left to write; {BAD_FILES} there says why")
        if tables_from is not None:
            carry_tables(Path(tables_from), folder, kept)
        write_index(folder, {task.archive.name: records[task.number] for task in tasks}, kaldi_dir.utt2spk)

    records, reused = fill_folder(
        tasks, make_shard, write_tables, made_of=made_of, max_bad=config.max_bad, jobs=config.jobs, progress=progress
    )
    entries = [entry for record in records for entry in record.entries.values()]
    return Sharding(
        shards=sum(bool(record.size) for record in records),
        reused=reused,
        utterances=len(entries),
        seconds=sum(entry.seconds for entry in entries),
        bad=[item for record in records for item in record.bad],
    )


def _check_options(config: ShardConfig) -> None:
    for name, value, choices in (("format", config.format, FORMATS), ("order", config.order, ORDERS)):
        if value not in choices:
            raise UserError(f"{name} is {value!r}, expected one of {', '.join(choices)}")
    for name in ("per_shard", "jobs", "sample_rate"):
        count = getattr(config, name)
        if count is not None and count < 1:
            raise UserError(f"{name} is {count}, expected 1 or more")
    check_max_bad(config.max_bad, all_of_them=False)
    if config.channel is not None and config.channel < 0:
        raise UserError(f"channel is {config.channel}, expected 0 or more (channels are counted from 0)")
    if config.resample and config.sample_rate is None:
        raise UserError("resample=true needs the rate to convert to; set sample_rate, for example sample_rate=16000")
    if config.format == "original" and (config.channel is not None or config.resample):
        raise UserError("format=original keeps files as they are; leave out channel and resample, or use format=flac")


def _check_utterances(utterances: Sequence[Utterance], audio_format: str) -> None:
    if not utterances:
        raise UserError("the data directory holds no utterance, so there is nothing to write")
    if audio_format != "original":
        return
    for utterance in utterances:
        if not utterance.whole_file:
            raise UserError(
                f"segments: {utterance.utterance_id!r} is a stretch of {utterance.path}; format=original keeps whole "
                "files only; use format=flac, which cuts the segments out"
            )
        extension_of(utterance)


def _rank(seed: int, utterance_id: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{utterance_id}".encode(), digest_size=16).digest()
