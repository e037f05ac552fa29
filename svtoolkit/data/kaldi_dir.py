"""The Kaldi data directory: wav.scp, utt2spk, spk2utt, optional segments, utt2dur and trials.

Contract: https://kaldi-asr.org/doc/data_prep.html. Every table is `key value...`, one entry a line, sorted in C
locale, keys unique, UTF-8. Two differences from Kaldi, both on purpose: a wav.scp entry is a file, never a piped
command (a pipe cannot be sought and runs whatever the list says; `svt convert` makes files of them where it is asked
to), and relative paths are taken from a root.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from svtoolkit.audio.pipes import how_to_run_pipes, is_pipe
from svtoolkit.audio.shards.location import format_location
from svtoolkit.data.audio_table import FEATURES, choose_audio_table, make_absolute, resolve, shard_base
from svtoolkit.data.raw_folders import refuse_other_folders
from svtoolkit.data.shard_index import INDEX, parse_shard_index
from svtoolkit.data.tables import (
    MISSING_TABLE,
    Fault,
    Segment,
    format_segment,
    parse_durations,
    parse_segments,
    read_table,
    write_table,
)
from svtoolkit.data.utt2spk import check_spk2utt, invert
from svtoolkit.errors import UserError
from svtoolkit.system.regular_file import is_regular

COLUMNS: dict[str, int | None] = {"wav.scp": None, INDEX: 2, FEATURES: None, "utt2spk": 2, "segments": 4, "utt2dur": 2}
"""Columns of each table, key included; None: the rest of the line is one value."""

PIPE = "pipe"
"""Code of the fault that an entry of wav.scp is a command."""


@dataclass(frozen=True)
class Utterance:
    """Where the samples of one utterance are.

    Attributes:
        offset: where it begins in the file, in seconds.
        duration: its length in seconds; None where no table says it.
        whole_file: it is all of the file, so that ``duration`` is information and no limit.
    """

    utterance_id: str
    speaker: str
    path: Path
    offset: float = 0.0
    duration: float | None = None
    whole_file: bool = True


@dataclass
class KaldiDir:
    """The tables of one data directory, in memory.

    Attributes:
        wav_scp: recording id -> path as written in the list (the utterance id where there are no segments).
        utt2spk: utterance id -> speaker id.
        segments: utterance id -> stretch of a recording; empty where every recording is one utterance.
        utt2dur: utterance id -> duration in seconds; empty where unknown.
        root: folder that relative paths of wav.scp are taken from.
        audio_table: name of the table that the paths are written to: wav.scp, or feats.scp of features.
    """

    wav_scp: dict[str, str] = field(default_factory=dict)
    utt2spk: dict[str, str] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    utt2dur: dict[str, float] = field(default_factory=dict)
    root: Path = Path()
    audio_table: str = "wav.scp"

    @classmethod
    def read(
        cls, path: str | Path, root: str | Path | None = None, source: str | None = None, *, pipes: bool = False
    ) -> KaldiDir:
        """Read a data directory, refusing the first fault of its tables (audio is not opened).

        Args:
            path: the data directory.
            root: folder that relative paths are taken from; if None the working directory, of shards the data
                directory. Of shards it may be a URL.
            source: files, shards or features; None: files where there is wav.scp, else shards.
            pipes: let piped commands stand in wav.scp, for a caller that runs them.

        Raises:
            UserError: a table is missing or malformed; the sentence names file, line and remedy.
        """
        tables = parse_tables(path, root, source)
        harmless = ("unsorted", "no-spk2utt", *([PIPE] if pipes else []))
        fatal = [fault for fault in tables.faults if fault.code not in harmless]
        if fatal:
            more = f" ({len(fatal) - 1} more; `svt validate {path}` lists all)" if len(fatal) > 1 else ""
            raise UserError(f"{Path(path)}/{fatal[0]}{more}")
        return tables.kaldi_dir

    @property
    def spk2utt(self) -> dict[str, list[str]]:
        """Speaker id -> its utterance ids, both in C-locale order."""
        return invert(self.utt2spk)

    @property
    def speakers(self) -> list[str]:
        return sorted(set(self.utt2spk.values()))

    def audio_path(self, recording: str) -> Path:
        return resolve(self.wav_scp[recording], self.root)

    def utterance(self, utterance_id: str) -> Utterance:
        segment = self.segments.get(utterance_id)
        recording = segment.recording if segment else utterance_id
        start = segment.start if segment else 0.0
        duration = self.utt2dur.get(utterance_id)
        if segment and segment.end is not None:
            duration = segment.end - segment.start
        path, speaker = self.audio_path(recording), self.utt2spk[utterance_id]
        return Utterance(utterance_id, speaker, path, start, duration, whole_file=segment is None)

    def utterances(self) -> list[Utterance]:
        """All utterances in C-locale order of their ids."""
        return [self.utterance(utterance_id) for utterance_id in sorted(self.utt2spk)]

    def subset(self, utterance_ids: Iterable[str]) -> KaldiDir:
        """The data directory of these utterances alone."""
        kept = set(utterance_ids)
        segments = {utt: segment for utt, segment in self.segments.items() if utt in kept}
        recordings = {segment.recording for segment in segments.values()} if self.segments else kept
        return KaldiDir(
            wav_scp={rec: path for rec, path in self.wav_scp.items() if rec in recordings},
            utt2spk={utt: speaker for utt, speaker in self.utt2spk.items() if utt in kept},
            segments=segments,
            utt2dur={utt: seconds for utt, seconds in self.utt2dur.items() if utt in kept},
            root=self.root,
            audio_table=self.audio_table,
        )

    def write(self, path: str | Path) -> None:
        """Write all tables, sorted, paths made absolute; each file is replaced in one step."""
        folder = Path(path)
        paths = {rec: make_absolute(self.audio_path(rec)) for rec in self.wav_scp}
        write_table(folder / self.audio_table, paths)
        write_table(folder / "utt2spk", self.utt2spk)
        write_table(folder / "spk2utt", {spk: " ".join(utts) for spk, utts in self.spk2utt.items()})
        for name, table in (
            ("segments", {utt: format_segment(segment) for utt, segment in self.segments.items()}),
            # repr: the shortest digits that give the same number back, so that no sample is lost or won.
            ("utt2dur", {utt: repr(float(seconds)) for utt, seconds in self.utt2dur.items()}),
        ):
            if table:
                write_table(folder / name, table)
            else:
                (folder / name).unlink(missing_ok=True)


def further_tables(folder: Path, utt2spk: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Other tables of utterances and speakers (utt2*, spk2*, text): their name and their entries of those given."""
    for patterns, keys in ((("utt2*", "text"), set(utt2spk)), (("spk2*",), set(utt2spk.values()))):
        for file in sorted(file for pattern in patterns for file in folder.glob(pattern)):
            if file.name not in (*COLUMNS, "spk2utt") and is_regular(file):
                yield file.name, {key: value for key, (_, value) in read_table(file, []).items() if key in keys}


@dataclass
class Tables:
    """A data directory as far as its tables could be read.

    Attributes:
        kaldi_dir: the entries that are well-formed.
        faults: everything wrong with the tables.
        lines: file name -> key -> line number.
        audio_table: file name of the list of audio.
    """

    kaldi_dir: KaldiDir
    faults: list[Fault]
    lines: dict[str, dict[str, int]]
    audio_table: str = "wav.scp"

    def where(self, name: str, key: str) -> str:
        line = self.lines.get(name, {}).get(key)
        return name if line is None else f"{name}:{line}"


def parse_tables(path: str | Path, root: str | Path | None = None, source: str | None = None) -> Tables:
    """Read the tables of a data directory as far as possible and list everything wrong with them; opens no audio.

    Args:
        path, root, source: as for ``KaldiDir.read``.

    Raises:
        UserError: there is no such folder.
    """
    folder = Path(path)
    refuse_other_folders(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such data directory; expected a folder with wav.scp and utt2spk")
    audio_table = choose_audio_table(folder, source)
    is_sharded = audio_table == INDEX
    unread = {"wav.scp", INDEX, FEATURES} - {audio_table}
    if "wav.scp" in unread:
        unread.add("segments")
    faults: list[Fault] = []
    for name in (audio_table, "utt2spk"):
        if not is_regular(folder / name):
            message = "the file is missing; every data directory needs it"
            if name == INDEX:
                message = (
                    "the file is missing, which finds the utterances in the shards; copy it, or run `svt shard` again, "
                    "which writes it last"
                )
            elif name == "wav.scp" and (folder / FEATURES).is_file():
                message = (
                    f"the file is missing, and of the features of {FEATURES} no audio can be had; name the data "
                    "directory that they were made of"
                )
            faults.append(Fault(MISSING_TABLE, name, message))
    raw = {
        name: {} if name in unread else read_table(folder / name, faults, columns) for name, columns in COLUMNS.items()
    }
    kaldi_dir = KaldiDir(
        wav_scp={rec: path for rec, (_, path) in raw[audio_table].items()},
        utt2spk={utt: speaker for utt, (_, speaker) in raw["utt2spk"].items()},
        segments=parse_segments(raw["segments"], faults),
        utt2dur=parse_durations(raw["utt2dur"], faults),
        root=Path(root) if root is not None else Path(),
        audio_table=FEATURES if audio_table == FEATURES else "wav.scp",
    )
    if is_sharded:
        locations = parse_shard_index(raw[INDEX], faults, shard_base(folder, root))
        kaldi_dir.wav_scp = {utterance: format_location(location) for utterance, location in locations.items()}
    lines = {name: {key: line for key, (line, _) in table.items()} for name, table in raw.items()}
    tables = Tables(kaldi_dir, faults, lines, audio_table)
    for recording, location in kaldi_dir.wav_scp.items():
        if is_pipe(location):
            where = tables.where(audio_table, recording)
            faults.append(Fault(PIPE, where, f"{location!r} is a command; {how_to_run_pipes(folder, root)}", recording))
    if not any(fault.code == MISSING_TABLE for fault in faults):  # of which every utterance would be a fault
        faults += _cross_check(tables, "segments" not in unread and is_regular(folder / "segments"))
    faults += check_spk2utt(folder / "spk2utt", kaldi_dir.utt2spk)
    # A wrong duration costs no utterance: it can be measured again.
    tables.faults = [replace(f, utterance=None) if f.where.startswith("utt2dur") else f for f in faults]
    return tables


def _cross_check(tables: Tables, segmented: bool) -> list[Fault]:
    """Ids that are in one table and missing in another."""
    kaldi_dir = tables.kaldi_dir
    faults = []
    listed = "segments" if segmented else tables.audio_table
    audio: Mapping[str, object] = kaldi_dir.segments if segmented else kaldi_dir.wav_scp

    def add(code: str, table: str, utterance: str, message: str) -> None:
        faults.append(Fault(code, tables.where(table, utterance), f"{utterance!r} {message}", utterance))

    for utterance in kaldi_dir.utt2spk:
        if utterance not in audio:
            add("no-audio-entry", "utt2spk", utterance, f"is not in {listed}; add it there or drop it here")
    for utterance in audio:
        if utterance not in kaldi_dir.utt2spk:
            add("no-speaker", listed, utterance, "is not in utt2spk; say whose speech it is or drop it")
    for utterance, segment in kaldi_dir.segments.items():
        if segment.recording not in kaldi_dir.wav_scp:
            message = f"names recording {segment.recording!r}, which is not in wav.scp; add it there or drop it here"
            add("no-recording", "segments", utterance, message)
    for utterance in kaldi_dir.utt2dur:
        if utterance not in kaldi_dir.utt2spk:
            add("unknown-duration", "utt2dur", utterance, "is not in utt2spk; drop it here")
    if kaldi_dir.utt2dur:
        for utterance in kaldi_dir.utt2spk:
            if utterance not in kaldi_dir.utt2dur:
                add("no-duration", "utt2dur", utterance, "is not in utt2dur; complete the table or delete it")
    return faults
