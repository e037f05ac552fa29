"""The features of a data directory in Kaldi archives, by several processes, so that a stop costs one archive each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from svtoolkit.config import ComputeFeaturesConfig
from svtoolkit.data.archive_writer import fill_folder
from svtoolkit.data.audio_table import FEATURES
from svtoolkit.data.bad_files import BAD_FILES, BadFile, check_max_bad, count_allowed
from svtoolkit.data.feature_archive import FORMATS
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.data.feature_task import FeatureEntry, FeatureRecord, FeatureTask, make_archive
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.sharding.directory import carry_tables
from svtoolkit.data.tables import write_table
from svtoolkit.data.utt2spk import invert
from svtoolkit.errors import UserError

if TYPE_CHECKING:
    from svtoolkit.features import FrontEnd


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
        FeatureTask(out, number, tuple(utterances[begin : begin + config.per_archive]), allowed, config, build)
        for number, begin in enumerate(range(0, len(utterances), config.per_archive))
    ]

    def write_tables(records: Mapping[int, FeatureRecord]) -> None:
        _write_tables(out, tasks, records, kaldi_dir.utt2spk, Path(config.data), stored)

    records, reused = fill_folder(
        tasks, make_archive, write_tables, made_of=made_of, max_bad=config.max_bad, jobs=config.jobs, progress=progress
    )
    return FeatureFiles(
        archives=sum(bool(record.size) for record in records),
        reused=reused,
        utterances=sum(len(record.entries) for record in records),
        seconds=sum(entry.seconds for record in records for entry in record.entries.values()),
        size=sum(record.size for record in records),
        bad=[item for record in records for item in record.bad],
    )


def _check_settings(config: ComputeFeaturesConfig, build: Callable[[], FrontEnd]) -> None:
    if config.format not in FORMATS:
        raise UserError(f"format is {config.format!r}, expected one of {', '.join(FORMATS)}")
    for name, least in (("per_archive", 1), ("jobs", 1), ("channel", 0)):
        count = getattr(config, name)
        if count is not None and count < least:
            raise UserError(f"{name} is {count}, expected {least} or more")
    check_max_bad(config.max_bad, all_of_them=False)
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
