"""The features of a data directory in Kaldi archives, by several processes, so that a stop costs one archive each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from svtoolkit.config import ComputeFeaturesConfig
from svtoolkit.data.audio_table import AUDIO_TABLES, FEATURES
from svtoolkit.data.bad_files import BAD_FILES, BadFile, count_allowed, listing_bad_files
from svtoolkit.data.feature_archive import FORMATS
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.data.feature_task import RECORDS, FeatureEntry, FeatureRecord, FeatureTask, make_archive, read_record
from svtoolkit.data.kaldi_dir import KaldiDir, invert
from svtoolkit.data.sharding.directory import carry_tables
from svtoolkit.data.sharding.writer import digest_utterances
from svtoolkit.data.tables import write_table
from svtoolkit.errors import UserError
from svtoolkit.system.output_folder import claim_folder, explain_full_disk, hold_alone, remove_leftovers
from svtoolkit.system.processes import map_unordered

if TYPE_CHECKING:
    from svtoolkit.features import FrontEnd

log = logging.getLogger(__name__)

MADE_OF = "made_of.json"


@dataclass(frozen=True)
class FeatureFiles:
    """What `compute_features` did.

    Attributes:
        archives: that are there.
        reused: of these, how many an earlier run had finished.
        utterances: in the archives.
        seconds: of their audio.
        size: bytes of the archives.
        bad: utterances that were left out.
    """

    archives: int
    reused: int
    utterances: int
    seconds: float
    size: int
    bad: list[BadFile]


def compute_features(
    config: ComputeFeaturesConfig, build: Callable[[], FrontEnd], progress: Callable[[int], object] | None = None
) -> FeatureFiles:
    """Write the data directory of the features of another one, or what is missing of it.

    The bytes depend on utterances and settings alone, neither on ``jobs`` nor on how often a run was stopped. Finished
    archives are recorded in `<out>/.features`, and made again where audio has changed since; what has files that could
    not be used is tried again as long as `feats.scp`, which is written last, is not there. Trial lists and further
    tables are taken over.

    Args:
        config: of the command; with several ``jobs``, a script must call this under ``if __name__ == "__main__"``.
        build: makes the front end of ``config.features``; can be pickled.
        progress: called with the number of utterances finished since its last call.

    Raises:
        UserError: impossible settings; a front end whose frames cannot be stored; a faulty data directory; a folder
            that holds something else or is being written; too many bad files (all found so far are in
            `bad_files.tsv`); a full disk; a process that died. What is finished is kept.
    """
    _check_settings(config, build)
    kaldi_dir = KaldiDir.read(config.data, config.root)
    utterances, out = kaldi_dir.utterances(), Path(config.out).absolute()
    if not utterances:
        raise UserError(f"{config.data}: holds no utterance, so there is nothing to compute")
    stored = StoredFeatures.of(out, config.features, config.format)
    made_of = {"format": stored.form, "features": stored.settings}
    made_of |= {name: getattr(config, name) for name in ("channel", "resample", "per_archive")}
    allowed = count_allowed(config.max_bad, len(utterances))
    tasks = [
        FeatureTask(out, number, tuple(utterances[begin : begin + config.per_archive]), config, build, allowed)
        for number, begin in enumerate(range(0, len(utterances), config.per_archive))
    ]
    with explain_full_disk(out), _claim(out, {**made_of, "utterances": digest_utterances(utterances)}):
        records = _read_whole(tasks, finished=(out / FEATURES).is_file())
        reused = len(records)
        if progress is not None:
            progress(sum(_count(record) for record in records.values()))
        if reused == len(tasks) and (out / FEATURES).is_file():
            log.info("%s: all archives are there", out)
        else:
            (out / FEATURES).unlink(missing_ok=True)
            _make_missing(tasks, records, config, progress)
            _write_tables(out, tasks, records, kaldi_dir.utt2spk, Path(config.data), stored)
    return _sum_up(list(records.values()), reused)


def _check_settings(config: ComputeFeaturesConfig, build: Callable[[], FrontEnd]) -> None:
    if config.format not in FORMATS:
        raise UserError(f"format is {config.format!r}, expected one of {', '.join(FORMATS)}")
    for name, least in (("per_archive", 1), ("jobs", 1), ("channel", 0)):
        count = getattr(config, name)
        if count is not None and count < least:
            raise UserError(f"{name} is {count}, expected {least} or more")
    if not 0 <= config.max_bad < 1:
        raise UserError(f"max_bad is {config.max_bad}, expected a share of the utterances: 0 or more, below 1")
    if not config.features.remove_mean:
        raise UserError(
            "features.remove_mean is false, but the mean is removed, or not, where features are used: leave it out "
            "here, and give it to `svt train`"
        )
    if not getattr(build(), "framewise", False):
        raise UserError(
            f"features.backend={config.features.backend} does not say that each of its frames depends on its own "
            "window alone, without which frames of whole utterances cannot be stored and cut: if they do, build it as "
            "FrontEnd(..., framewise=True); if not, train on audio"
        )


@contextmanager
def _claim(folder: Path, made_of: Mapping[str, object]) -> Iterator[None]:
    """Hold the folder for this process alone, and refuse to mix what was made of something else with what is made."""
    records = folder / RECORDS
    if not (records / MADE_OF).is_file():
        foreign = [folder / name for name in (*AUDIO_TABLES.values(), "segments") if (folder / name).exists()]
        foreign += sorted(folder.glob("feats-*.ark"))
        if foreign:
            raise UserError(f"{foreign[0]}: the folder holds data already; choose another one for the features")
    records.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process is computing features there; wait for it or stop it"
    with hold_alone(records / "lock", busy=busy) as alone:
        claim_folder(records / MADE_OF, made_of, content="features made of")
        if alone:
            remove_leftovers([folder, records])
        yield


def _read_whole(tasks: Sequence[FeatureTask], *, finished: bool) -> dict[int, FeatureRecord]:
    """Number of each archive that is whole -> what it holds."""
    records = {task.number: read_record(task) for task in tasks}
    return {number: record for number, record in records.items() if record and (finished or not record.bad)}


def _make_missing(
    tasks: Sequence[FeatureTask],
    records: dict[int, FeatureRecord],
    config: ComputeFeaturesConfig,
    progress: Callable[[int], object] | None,
) -> None:
    """Make archives and add what they hold to the records; lists the bad files even where they are too many."""
    utterances = sum(len(task.utterances) for task in tasks)
    killed = (
        f"{tasks[0].out}: a worker process was killed, probably because memory ran out; finished archives are kept: "
        "run the same command again, with fewer jobs"
    )
    with listing_bad_files(tasks[0].out, utterances, config.max_bad) as bad:
        for record in records.values():
            bad.add(record.bad)
        missing = [task for task in tasks if task.number not in records]
        with closing(map_unordered(make_archive, missing, config.jobs, killed=killed)) as made:
            for task, record in made:
                records[task.number] = record
                if progress is not None:
                    progress(_count(record))
                bad.add(record.bad)


def _write_tables(
    out: Path,
    tasks: Sequence[FeatureTask],
    records: Mapping[int, FeatureRecord],
    utt2spk: Mapping[str, str],
    source: Path,
    stored: StoredFeatures,
) -> None:
    """Write the tables and features.yaml, `feats.scp` last: where it is, the directory is whole."""
    entries: dict[str, tuple[Path, FeatureEntry]] = {
        utterance: (task.archive, entry) for task in tasks for utterance, entry in records[task.number].entries.items()
    }
    if not entries:
        raise UserError(f"{out}: no utterance is left to compute features of; {BAD_FILES} there says why")
    kept = {utterance: utt2spk[utterance] for utterance in entries}
    carry_tables(source, out, kept, kept_as="that have features")
    write_table(out / "utt2spk", kept)
    write_table(out / "spk2utt", {speaker: " ".join(utterances) for speaker, utterances in invert(kept).items()})
    write_table(out / "utt2dur", {utterance: repr(entry.seconds) for utterance, (_, entry) in entries.items()})
    write_table(out / "utt2num_frames", {utterance: str(entry.frames) for utterance, (_, entry) in entries.items()})
    stored.write(out)
    write_table(out / FEATURES, {name: f"{archive}:{entry.offset}" for name, (archive, entry) in entries.items()})


def _count(record: FeatureRecord) -> int:
    return len(record.entries) + len(record.bad)


def _sum_up(records: Sequence[FeatureRecord], reused: int) -> FeatureFiles:
    bad = [item for record in records for item in record.bad]
    if bad:
        log.warning("%d utterances are left out for bad audio; the first: %s", len(bad), bad[0].reason)
    return FeatureFiles(
        archives=sum(bool(record.size) for record in records),
        reused=reused,
        utterances=sum(len(record.entries) for record in records),
        seconds=sum(entry.seconds for record in records for entry in record.entries.values()),
        size=sum(record.size for record in records),
        bad=bad,
    )
