"""Utterances whose audio is bad, taken out of the tables of their data directory and put on its list of bad files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from svtoolkit.data.audio_table import AUDIO_TABLES, find_source
from svtoolkit.data.bad_files import BadFile, BadFiles, read_bad_files, write_bad_files
from svtoolkit.data.feature_verification import FEATURE_FAULTS
from svtoolkit.data.kaldi_dir import KaldiDir, further_tables, parse_tables
from svtoolkit.data.repair import choose_dropped
from svtoolkit.data.tables import read_table, write_table
from svtoolkit.data.trials import parse_trials
from svtoolkit.data.utt2spk import invert
from svtoolkit.data.validation import Validation, find_trials

AUDIO_FAULTS = frozenset(
    "missing-audio unreadable-audio empty-audio truncated-audio not-finite silent-audio beyond-end".split()
).union(FEATURE_FAULTS)
"""Codes of faults that are of an utterance's audio, or features, alone."""


def drop_bad_audio(
    path: str | Path, validation: Validation, *, root: str | None = None, max_bad: float
) -> tuple[list[BadFile], Validation]:
    """Take utterances with bad audio out of a data directory; `bad_files.tsv` there lists them.

    Utterances that a trial list names stay, and their faults with them: an evaluation without them would be another.
    A directory whose tables are faulty is left as it is.

    Args:
        path: the data directory; its tables are replaced, one by one.
        validation: what `validate` found there.
        root: that relative paths are taken from.
        max_bad: share of the utterances that may be dropped; where it is above 0, one always may.

    Returns:
        what was dropped, and the validation without the faults of it.

    Raises:
        UserError: more are bad; nothing is changed.
    """
    folder = Path(path)
    tables = parse_tables(folder, root, find_source(folder, None))
    kaldi_dir = tables.kaldi_dir
    tried = {
        utterance
        for file in find_trials(folder)
        for _, _, trial in parse_trials(file)
        if not isinstance(trial, str)
        for utterance in trial[:2]
    }
    faults = [fault for fault in validation.faults if fault.code in AUDIO_FAULTS]
    dropped = {item: why for item, why in choose_dropped(kaldi_dir, faults).items() if item not in tried}
    if not dropped or tables.faults:  # what is wrong with tables is not to be lost in new ones
        return [], validation
    found = [BadFile(item, str(_audio_of(item, tables.kaldi_dir)), why) for item, why in sorted(dropped.items())]
    bad = BadFiles(folder, len(kaldi_dir.utt2spk), max_bad)
    bad.add(found)
    write_bad_files(folder, {item.utterance_id: item for item in [*read_bad_files(folder), *found]}.values())
    kept = {utterance: speaker for utterance, speaker in kaldi_dir.utt2spk.items() if utterance not in dropped}
    for name, table in further_tables(folder, kept):
        write_table(folder / name, table)
    recordings = {segment.recording for utterance, segment in kaldi_dir.segments.items() if utterance in kept}
    for name in (*AUDIO_TABLES.values(), "segments", "utt2dur", "utt2spk"):
        by_recording = bool(kaldi_dir.segments) and name == "wav.scp"
        _restrict(folder / name, recordings if by_recording else kept)
    write_table(folder / "spk2utt", {speaker: " ".join(utterances) for speaker, utterances in invert(kept).items()})
    gone = set(dropped) | {
        segment.recording for utt, segment in kaldi_dir.segments.items() if segment.recording not in recordings
    }
    wheres = {tables.where("utt2dur", utterance) for utterance in dropped if utterance in tables.lines["utt2dur"]}
    left = [fault for fault in validation.faults if fault.utterance not in gone and fault.where not in wheres]
    durations = {utt: seconds for utt, seconds in validation.durations.items() if utt in kept}
    smaller = replace(
        validation,
        faults=left,
        durations=durations,
        speakers=len(set(kept.values())),
        utterances=len(kept),
        hours=sum(durations.values()) / 3600,
    )
    return found, smaller


def _audio_of(name: str, kaldi_dir: KaldiDir) -> Path:
    """The file of an utterance, or of a recording that has none."""
    segment = kaldi_dir.segments.get(name)
    return kaldi_dir.audio_path(name if segment is None else segment.recording)


def _restrict(path: Path, keys: Collection[str]) -> None:
    """Leave the entries of some keys in a table, where there is one."""
    if path.is_file():
        write_table(path, {key: value for key, (_, value) in read_table(path, []).items() if key in keys})
