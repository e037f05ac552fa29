"""Whether the features of a data directory are what its tables, its settings and its records say."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svtoolkit.data.audio_table import FEATURES
from svtoolkit.data.feature_archive import archive_of, open_features
from svtoolkit.data.feature_settings import SETTINGS, StoredFeatures
from svtoolkit.data.feature_task import ARCHIVES
from svtoolkit.data.kaldi_dir import Tables
from svtoolkit.data.tables import Fault, read_table
from svtoolkit.errors import UserError
from svtoolkit.system.plain_data import MalformedError, parse_json, read_text
from svtoolkit.system.regular_file import is_regular
from svtoolkit.system.threads import map_in_order

NUM_FRAMES = "utt2num_frames"

UNUSABLE = "unusable-features"
"""Code of the fault that the directory does not say what its features are, so that nothing can use or repair them."""

FEATURE_FAULTS = frozenset({"unreadable-features", "other-features", "not-finite", "archive-size"})
"""Codes of faults that are of an utterance's features alone."""

BLOCK = 10_000
"""Frames that are read at a time."""

TOLERANCE = 0.05
"""Seconds that utt2dur may lie beyond what the frames span, and one more frame would not: rounding."""

AGAIN = "compute the features again with `svt features`, or copy the whole directory again"


@dataclass(frozen=True)
class _Found:
    """What lies at the offset of an utterance: its frames, or why they cannot be used."""

    frames: int = 0
    code: str | None = None
    problem: str = ""


@dataclass
class FeatureChecks:
    """Reads the features of a directory.

    Attributes:
        faults: of the settings, of archives, of utterances, then of tables.
        frames: of each utterance that can be read whole.
        durations: of each of these, in seconds: that of utt2dur, or what the frames span where it says something else.
    """

    folder: Path
    tables: Tables

    def __post_init__(self) -> None:
        self.faults: list[Fault] = []
        self.frames: dict[str, int] = {}
        self.durations: dict[str, float] = {}

    def run(self, jobs: int, progress: Callable[[int], object] | None) -> None:
        """Read every archive once."""
        try:
            settings = StoredFeatures.read(self.folder).settings
            bins = int(settings["num_bins"])
            window, shift = (float(settings[f"frame_{name}_ms"]) / 1000 for name in ("length", "shift"))
        except UserError as error:
            file, _, message = str(error).removeprefix(f"{self.folder}/").partition(": ")
            self.faults.append(Fault(UNUSABLE, file, message))
            return
        except (KeyError, TypeError, ValueError):
            message = f"expected num_bins, frame_length_ms and frame_shift_ms; {AGAIN}"
            self.faults.append(Fault(UNUSABLE, SETTINGS, message))
            return
        entries = sorted(self.tables.kaldi_dir.wav_scp)
        for done, (utterance, found) in enumerate(
            zip(entries, map_in_order(lambda name: self._read(name, bins), entries, jobs), strict=True), start=1
        ):
            if found.code is not None:
                where = self.tables.where(FEATURES, utterance)
                self.faults.append(Fault(found.code, where, f"{utterance!r}: {found.problem}", utterance))
            elif utterance in self.tables.kaldi_dir.utt2spk:
                self.frames[utterance] = found.frames
            if progress is not None:
                progress(done)
        self.faults = self._check_sizes() + self.faults
        self.faults += self._check_num_frames()
        self.faults += self._check_durations(window, shift)

    def _check_sizes(self) -> list[Fault]:
        """Archives with unreadable utterances that have not the size with which they were written, by their records."""
        first: dict[Path, Fault] = {}
        for fault in self.faults:
            archive = fault.utterance and archive_of(self.tables.kaldi_dir.audio_path(fault.utterance))
            if archive:
                first.setdefault(archive, fault)
        faults = []
        for archive, fault in first.items():
            written = _recorded_size(archive)
            if written is not None and is_regular(archive) and (size := archive.stat().st_size) != written:
                message = f"{archive} has {size} bytes, was written with {written}; {AGAIN}"
                faults.append(Fault("archive-size", fault.where, message, fault.utterance))
        return faults

    def _read(self, utterance: str, bins: int) -> _Found:
        location = self.tables.kaldi_dir.audio_path(utterance)
        try:
            if not _is_named(location, utterance):
                return _Found(0, "other-features", f"{location} is not preceded by its name; {AGAIN}")
            with open_features(location, bins) as matrix:
                for first in range(0, matrix.rows, BLOCK):
                    if not np.isfinite(matrix.read(first, min(BLOCK, matrix.rows - first))).all():
                        return _Found(0, "not-finite", f"{location} holds features that are NaN or infinite; {AGAIN}")
                return _Found(matrix.rows)
        except UserError as error:
            return _Found(0, "unreadable-features", str(error))

    def _check_num_frames(self) -> list[Fault]:
        """utt2num_frames against the archives; it can be written again, so that no utterance is lost by it."""
        faults: list[Fault] = []
        if not is_regular(self.folder / NUM_FRAMES):
            return [Fault("no-num-frames", NUM_FRAMES, "the file is missing; `svt validate --fix` writes it")]
        table = read_table(self.folder / NUM_FRAMES, faults, 2)
        remedy = "`svt validate --fix` writes the table again"
        for utterance, frames in self.frames.items():
            line, listed = table.get(utterance, (0, ""))
            if not line:
                message = f"{utterance!r} is not in {NUM_FRAMES}; {remedy}"
                faults.append(Fault("no-num-frames", self.tables.where("utt2spk", utterance), message))
            elif listed != str(frames):
                message = f"{utterance!r} has {frames} frames, the table says {listed}; {remedy}"
                faults.append(Fault("wrong-num-frames", f"{NUM_FRAMES}:{line}", message))
        for utterance in table.keys() - self.tables.kaldi_dir.utt2spk.keys():
            message = f"{utterance!r} is not in utt2spk; drop it here"
            faults.append(Fault("unknown-num-frames", f"{NUM_FRAMES}:{table[utterance][0]}", message))
        return [Fault(fault.code, fault.where, fault.message) for fault in faults]

    def _check_durations(self, window: float, shift: float) -> list[Fault]:
        """utt2dur against what the frames span: no audio is there to measure."""
        faults = []
        for utterance, frames in self.frames.items():
            span = (frames - 1) * shift + window
            listed = self.tables.kaldi_dir.utt2dur.get(utterance)
            if listed is not None and span - TOLERANCE <= listed <= span + shift + TOLERANCE:
                self.durations[utterance] = listed
                continue
            self.durations[utterance] = span
            if listed is not None:
                message = f"{utterance!r} has {frames} frames of {span:.3f} s, the table says {listed:g} s; correct it"
                faults.append(Fault("wrong-duration", self.tables.where("utt2dur", utterance), message))
        return faults


def _recorded_size(archive: Path) -> int | None:
    """Bytes that `svt features` wrote; None where its record is not there or is none."""
    record = archive.parent / ARCHIVES.records / f"{archive.stem}.json"
    try:
        content = parse_json(read_text(record))
    except (MalformedError, UserError, OSError):
        return None
    return content.get("size") if isinstance(content, dict) else None


def _is_named(location: Path, utterance: str) -> bool:
    """Whether the name of the utterance stands before its offset; True where that cannot be told."""
    archive, (_, _, offset) = archive_of(location), str(location).rpartition(":")
    if archive is None or not is_regular(archive):
        return True
    expected = f"{utterance} ".encode()
    begin = int(offset) - len(expected)
    with archive.open("rb", buffering=0) as stream:
        return begin >= 0 and os.pread(stream.fileno(), len(expected), begin) == expected
