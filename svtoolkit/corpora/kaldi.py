"""Existing Kaldi data directories, one or several joined.

Layout: each source holds wav.scp and utt2spk, optionally segments and utt2dur (see svtoolkit/data/kaldi_dir.py).
Corpus and licence are the user's own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from svtoolkit.audio.inspection import measure_durations
from svtoolkit.audio.shards.location import is_there
from svtoolkit.corpora.folders import Measure
from svtoolkit.corpora.prepared import Prepared
from svtoolkit.data.audio_table import make_absolute
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.tables import Segment
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError
from svtoolkit.system.foreign_path import remedy_of_windows_path


def prepare_kaldi(
    sources: Sequence[str | Path],
    root: str | Path | None = None,
    *,
    jobs: int = 1,
    measure: Measure | None = None,
) -> Prepared:
    """Read data directories and join them.

    Args:
        sources: the data directories. An utterance id may stand in one of them only. A speaker id may stand in
            several only if they share a file of that speaker, which shows that it is the same person.
        root: folder that relative paths are taken from; the working directory if None.
        jobs: headers read at a time, where a source has no utt2dur.
        measure: as for ``make_kaldi_dir``; it may leave nothing out.

    Returns:
        the joined directory with absolute paths and all durations; of a single source with its trial lists, as those
            of several are not one list.

    Raises:
        UserError: no source, a fault in a table, ids that clash between sources, audio that is missing or broken.
    """
    if not sources:
        raise UserError("no source is given, expected one or several Kaldi data directories")
    parts = [_read_absolute(Path(source), root) for source in sources]
    for (first, one), (second, other) in itertools.combinations(zip(sources, parts, strict=True), 2):
        _check_ids(Path(first), one, Path(second), other)
    segmented = any(part.segments for part in parts)
    joined = KaldiDir()
    for part in parts:
        joined.wav_scp |= part.wav_scp
        joined.utt2spk |= part.utt2spk
        joined.utt2dur |= part.utt2dur
        # Where one source has segments, whole recordings of the others become segments, too.
        whole = {utterance: Segment(utterance, 0.0, None) for utterance in part.utt2spk}
        joined.segments |= (part.segments or whole) if segmented else {}
    _measure_missing(joined, jobs, measure)
    return Prepared(joined, trial_files=find_trials(sources[0]) if len(sources) == 1 else ())


def _read_absolute(folder: Path, root: str | Path | None) -> KaldiDir:
    kaldi_dir = KaldiDir.read(folder, root)
    paths = {recording: Path(make_absolute(kaldi_dir.audio_path(recording))) for recording in kaldi_dir.wav_scp}
    missing = [recording for recording, path in paths.items() if not is_there(path)]
    if missing:
        recording = missing[0]
        listed = kaldi_dir.wav_scp[recording]
        foreign = remedy_of_windows_path(listed)
        remedy = foreign or "check the paths, or run `svt validate --fix` on the directory"
        if foreign is None and not os.path.isabs(listed):
            remedy = (
                "relative paths were taken from the working directory: give the folder they start from as root=..."
                if root is None
                else f"relative paths were taken from root={root}: check that it is the folder they start from"
            )
        raise UserError(
            f"{folder}/wav.scp: {recording!r} lists {listed}, but there is no file {paths[recording]} "
            f"({len(missing)} of {len(paths)} are missing); {remedy}"
        )
    kaldi_dir.wav_scp = {recording: str(path) for recording, path in paths.items()}
    return kaldi_dir


def _check_ids(first: Path, one: KaldiDir, second: Path, other: KaldiDir) -> None:
    both = f"{first} and {second}"
    utterances = sorted(one.utt2spk.keys() & other.utt2spk.keys())
    if utterances:
        raise UserError(
            f"utterance {utterances[0]!r} is in both {both} ({len(utterances)} shared); ids must differ: "
            "rename them in one, or leave one directory out"
        )
    recordings = sorted(
        recording
        for recording in one.wav_scp.keys() & other.wav_scp.keys()
        if one.wav_scp[recording] != other.wav_scp[recording]
    )
    if recordings:
        raise UserError(
            f"recording {recordings[0]!r} is another file in each of {both} ({len(recordings)} such); "
            "rename the recordings of one in its wav.scp and segments"
        )
    files, other_files = _files_of_speakers(one), _files_of_speakers(other)
    speakers = sorted(
        speaker for speaker in files.keys() & other_files.keys() if not files[speaker] & other_files[speaker]
    )
    if speakers:
        raise UserError(
            f"speaker {speakers[0]!r} is in both {both} with different audio ({len(speakers)} such); if these are "
            "different people, rename them in one (a prefix will do); if not, make one directory of both"
        )


def _files_of_speakers(kaldi_dir: KaldiDir) -> dict[str, set[Path]]:
    files: dict[str, set[Path]] = {}
    for utterance in kaldi_dir.utterances():
        files.setdefault(utterance.speaker, set()).add(utterance.path)
    return files


def _measure_missing(kaldi_dir: KaldiDir, jobs: int, measure: Measure | None) -> None:
    """Fill in utt2dur: from the segment where it has an end, else from the header of the file."""
    open_ended = {}
    for utterance in kaldi_dir.utterances():
        utterance_id = utterance.utterance_id
        if utterance.duration is None:
            open_ended[utterance_id] = str(utterance.path)
        else:
            kaldi_dir.utt2dur[utterance_id] = utterance.duration
    measured = measure_durations(open_ended, jobs=jobs) if measure is None else measure(open_ended)
    for utterance_id, seconds in measured.items():
        offset = kaldi_dir.utterance(utterance_id).offset
        if seconds <= offset:
            raise UserError(
                f"segments: {utterance_id!r} begins at {offset:g} s, but {open_ended[utterance_id]} is {seconds:.2f} s "
                "long; correct the segment or drop it"
            )
        kaldi_dir.utt2dur[utterance_id] = seconds - offset
    kaldi_dir.utt2dur = dict(sorted(kaldi_dir.utt2dur.items()))
