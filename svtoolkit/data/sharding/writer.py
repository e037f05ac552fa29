"""Writing a data directory's audio into tar shards, by several processes, so that a stop costs one shard each."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svtoolkit.config import ShardConfig
from svtoolkit.data.bad_files import BAD_FILES, BadFile, count_allowed, listing_bad_files
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.data.shard_index import INDEX
from svtoolkit.data.sharding.directory import carry_tables, write_index
from svtoolkit.data.sharding.encoding import FORMATS, extension_of
from svtoolkit.data.sharding.shard_file import RECORDS, ShardRecord, ShardTask, make_shard, read_record
from svtoolkit.errors import UserError
from svtoolkit.system.output_folder import claim_folder, explain_full_disk, hold_alone, remove_leftovers
from svtoolkit.system.processes import map_unordered

log = logging.getLogger(__name__)

LAYOUT = 1  # of archives and tables: raise it with any change that gives the same input other bytes
ORDERS = ("shuffled", "sorted")
MADE_OF = "made_of.json"


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
        ShardTask(folder, number, tuple(utterances[start : start + config.per_shard]), config, allowed)
        for number, start in enumerate(range(0, len(utterances), config.per_shard))
    ]
    with explain_full_disk(folder), _claim(folder, {**made_of, "utterances": digest_utterances(utterances)}):
        records = _read_whole(tasks, finished=(folder / INDEX).is_file())
        reused = len(records)
        for record in records.values():
            _tell(progress, record)
        if reused < len(tasks) or not (folder / INDEX).is_file():
            (folder / INDEX).unlink(missing_ok=True)
            _make_missing(tasks, records, config, progress)
            _write_tables(tasks, records, kaldi_dir.utt2spk, tables_from)
        else:
            log.info("%s: all shards are there", folder)
    return _sum_up(list(records.values()), reused)


def _check_options(config: ShardConfig) -> None:
    for name, value, choices in (("format", config.format, FORMATS), ("order", config.order, ORDERS)):
        if value not in choices:
            raise UserError(f"{name} is {value!r}, expected one of {', '.join(choices)}")
    for name in ("per_shard", "jobs", "sample_rate"):
        count = getattr(config, name)
        if count is not None and count < 1:
            raise UserError(f"{name} is {count}, expected 1 or more")
    if not 0 <= config.max_bad < 1:
        raise UserError(f"max_bad is {config.max_bad}, expected a share of the utterances: 0 or more, below 1")
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


def digest_utterances(utterances: Sequence[Utterance]) -> str:
    """Tells one list of utterances from another: ids, speakers, files and stretches, in their order."""
    digest = hashlib.sha256()
    for item in utterances:
        stretch = None if item.whole_file else (item.offset, item.duration)
        digest.update(f"{(item.utterance_id, item.speaker, str(item.path), stretch)!r}\n".encode())
    return digest.hexdigest()


@contextmanager
def _claim(folder: Path, made_of: dict[str, object]) -> Iterator[None]:
    """Hold the folder for this process alone, and refuse to mix what was made of something else with what is made."""
    records = folder / RECORDS
    claim = records / MADE_OF
    if not claim.is_file():
        foreign = [folder / name for name in (INDEX, "wav.scp", "segments") if (folder / name).exists()]
        foreign += sorted(folder.glob("shard-*.tar"))
        if foreign:
            raise UserError(f"{foreign[0]}: the folder holds data already; choose another one for the shards")
    records.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process is writing shards there; wait for it or stop it"
    with hold_alone(records / "lock", busy=busy) as alone:
        is_empty = alone and not any(folder.glob("shard-*.tar"))
        claim_folder(claim, made_of, content="shards made of", is_empty=is_empty)
        if alone:
            remove_leftovers([folder, records])
        yield


def _read_whole(tasks: Sequence[ShardTask], *, finished: bool) -> dict[int, ShardRecord]:
    """Number of each shard that is whole -> what it holds."""
    records = {task.number: read_record(task) for task in tasks}
    return {number: record for number, record in records.items() if record and (finished or not record.bad)}


def _make_missing(
    tasks: Sequence[ShardTask],
    records: dict[int, ShardRecord],
    config: ShardConfig,
    progress: Callable[[int], object] | None,
) -> None:
    """Make shards and add what they hold to the records; lists the bad files even where they are too many."""
    utterances = sum(len(task.utterances) for task in tasks)
    killed = (
        f"{tasks[0].out}: a worker process was killed, probably because memory ran out; finished shards are kept: run "
        "the same command again, with fewer jobs"
    )
    with listing_bad_files(tasks[0].out, utterances, config.max_bad) as bad:
        for record in records.values():
            bad.add(record.bad)
        missing = [task for task in tasks if task.number not in records]
        with closing(map_unordered(make_shard, missing, config.jobs, killed=killed)) as made:
            for task, record in made:
                records[task.number] = record
                _tell(progress, record)
                bad.add(record.bad)


def _write_tables(
    tasks: Sequence[ShardTask],
    records: Mapping[int, ShardRecord],
    utt2spk: Mapping[str, str],
    tables_from: str | Path | None,
) -> None:
    kept = {utterance: utt2spk[utterance] for record in records.values() for utterance in record.entries}
    if not kept:
        raise UserError(f"{tasks[0].out}: no utterance is left to write; {BAD_FILES} there says why")
    if tables_from is not None:
        carry_tables(Path(tables_from), tasks[0].out, kept)
    write_index(tasks[0].out, {task.archive.name: records[task.number] for task in tasks}, utt2spk)


def _tell(progress: Callable[[int], object] | None, record: ShardRecord) -> None:
    if progress is not None:
        progress(len(record.entries) + len(record.bad))


def _sum_up(records: Sequence[ShardRecord], reused: int) -> Sharding:
    entries = [entry for record in records for entry in record.entries.values()]
    bad = [item for record in records for item in record.bad]
    if bad:
        log.warning("%d utterances are left out for bad audio; the first: %s", len(bad), bad[0].reason)
    archives = sum(bool(record.size) for record in records)
    return Sharding(archives, reused, len(entries), sum(entry.seconds for entry in entries), bad)
