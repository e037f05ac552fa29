"""A data directory as arrays, which loader workers share: a million utterances are bytes, not Python objects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np

from svtoolkit.crops.text_column import (
    BLOCK_ROWS,
    NEWLINE,
    TextColumn,
    are_equal,
    read_regular_table,
    split_words,
)
from svtoolkit.data.audio_table import FEATURES, choose_audio_table, resolve, shard_base
from svtoolkit.data.kaldi_dir import KaldiDir, Segment, Utterance
from svtoolkit.data.shard_index import INDEX
from svtoolkit.data.tables import LONGEST
from svtoolkit.system.regular_file import is_regular

PIPE = ord("|")


@dataclass(frozen=True)
class Manifest(Sequence[Utterance]):
    """Utterances in C-locale order of their ids.

    Attributes:
        ids: of the utterances.
        locations: of their audio, as written in the list.
        speakers: speaker ids, sorted; each has an utterance.
        speaker_index: of each utterance, int32, shape (utterances,).
        seconds: duration of each, float64; NaN where no table says it.
        offsets: where each begins in its file, in seconds, float64; NaN: it is all of the file.
        root: folder that relative locations are taken from.
        audio_table: name of the list that locations are of: wav.scp, of shards too, or feats.scp.
    """

    ids: TextColumn
    locations: TextColumn
    speakers: Sequence[str]
    speaker_index: np.ndarray
    seconds: np.ndarray
    offsets: np.ndarray
    root: Path
    audio_table: str = "wav.scp"

    @classmethod
    def read(cls, path: str | Path, root: str | Path | None = None, source: str | None = None) -> Manifest:
        """Read a data directory, refusing the first fault of its tables (audio is not opened).

        Directories without segments whose tables are sorted, printable ASCII and complete are read as arrays; all
        others through ``KaldiDir.read``, to the same result.

        Args:
            path, root, source: as for ``KaldiDir.read``.

        Raises:
            UserError: as ``KaldiDir.read``.
        """
        manifest = _read_arrays(Path(path), root, choose_audio_table(Path(path), source))
        return cls.of(KaldiDir.read(path, root, source)) if manifest is None else manifest

    @classmethod
    def of(cls, kaldi_dir: KaldiDir) -> Manifest:
        """The utterances of a data directory in memory."""
        utterances = kaldi_dir.utterances()
        speakers = kaldi_dir.speakers
        index = {speaker: number for number, speaker in enumerate(speakers)}
        return cls(
            TextColumn.of(utterance.utterance_id for utterance in utterances),
            TextColumn.of(str(utterance.path) for utterance in utterances),
            speakers,
            np.array([index[utterance.speaker] for utterance in utterances], dtype=np.int32),
            np.array([np.nan if u.duration is None else u.duration for u in utterances], dtype=np.float64),
            np.array([np.nan if u.whole_file else u.offset for u in utterances], dtype=np.float64),
            Path(),
            kaldi_dir.audio_table,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, row: int) -> Utterance: ...
    @overload
    def __getitem__(self, row: slice) -> Manifest: ...
    def __getitem__(self, row: int | slice) -> Utterance | Manifest:
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        seconds, offset = float(self.seconds[row]), float(self.offsets[row])
        return Utterance(
            self.ids[row],
            self.speakers[self.speaker_index[row]],
            resolve(self.locations[row], self.root),
            0.0 if np.isnan(offset) else offset,
            None if np.isnan(seconds) else seconds,
            whole_file=bool(np.isnan(offset)),
        )

    def __iter__(self) -> Iterator[Utterance]:
        return (self[row] for row in range(len(self)))

    def take(self, rows: np.ndarray) -> Manifest:
        """These utterances (row numbers, increasing); speakers who keep none are dropped."""
        kept, speaker_index = np.unique(self.speaker_index[rows], return_inverse=True)
        return Manifest(
            self.ids.take(rows),
            self.locations.take(rows),
            [self.speakers[number] for number in kept],
            speaker_index.astype(np.int32),
            self.seconds[rows],
            self.offsets[rows],
            self.root,
            self.audio_table,
        )

    def of_speakers(self, speakers: set[str]) -> tuple[Manifest, Manifest]:
        """(without them, with them alone)."""
        is_chosen = np.array([speaker in speakers for speaker in self.speakers], dtype=bool)[self.speaker_index]
        return self.take(np.flatnonzero(~is_chosen)), self.take(np.flatnonzero(is_chosen))

    def kaldi_dir(self) -> KaldiDir:
        """The same as tables in memory, for few utterances; a segment is listed as of a recording of its own."""
        tables = KaldiDir(audio_table=self.audio_table)
        for utterance in self:
            name, seconds = utterance.utterance_id, utterance.duration
            tables.wav_scp[name] = str(utterance.path)
            tables.utt2spk[name] = utterance.speaker
            if not utterance.whole_file:
                end = None if seconds is None else utterance.offset + seconds
                tables.segments[name] = Segment(name, utterance.offset, end)
            elif seconds is not None:
                tables.utt2dur[name] = seconds
        if len(tables.utt2dur) < len(self):
            tables.utt2dur.clear()  # a table of some is a fault
        return tables

    def utterance_counts(self) -> dict[str, int]:
        """Speaker id -> number of utterances, speakers sorted."""
        return dict(zip(self.speakers, np.bincount(self.speaker_index).tolist(), strict=True))

    def fingerprint(self) -> str:
        """Changes with ids, speakers, durations and offsets, but not with the paths of files: corpora are moved."""
        digest = hashlib.sha256("\n".join(self.speakers).encode())
        for begin in range(0, len(self), BLOCK_ROWS):
            rows = slice(begin, begin + BLOCK_ROWS)
            digest.update(b"\n".join(self.ids[rows].padded().tolist()))
            digest.update(self.speaker_index[rows].astype("<i8").tobytes())
            for times in (self.seconds[rows], self.offsets[rows]):
                digest.update(np.nan_to_num(times * 1e4, nan=-1.0).round().astype("<i8").tobytes())
        return digest.hexdigest()


def _read_arrays(folder: Path, root: str | Path | None, audio_table: str) -> Manifest | None:
    """As a whole, not line by line; None where the directory has segments, or tables that are not regular."""
    is_sharded = audio_table == INDEX
    if audio_table == "wav.scp" and is_regular(folder / "segments"):
        return None
    audio = read_regular_table(folder / audio_table, columns=2 if is_sharded else None)
    speech = read_regular_table(folder / "utt2spk", columns=2)
    if audio is None or speech is None or not are_equal(audio[0], speech[0]):
        return None
    ids, locations = audio
    if (locations.text[locations.starts] == PIPE).any() or (locations.text[locations.ends - 1] == PIPE).any():
        return None
    speakers, speaker_index = _number(speech[1])
    seconds = _read_seconds(folder / "utt2dur", ids)
    if seconds is None or not _is_inverse(folder / "spk2utt", ids, speakers, speaker_index):
        return None
    base = Path(shard_base(folder, root)) if is_sharded else Path() if root is None else Path(root)
    whole = np.full(len(ids), np.nan)
    listed = FEATURES if audio_table == FEATURES else "wav.scp"
    return Manifest(ids, locations, speakers, speaker_index, seconds, whole, base, listed)


def _number(names: TextColumn) -> tuple[list[str], np.ndarray]:
    """The different names, sorted, and the number of each row's, int32."""
    padded = names.padded()
    is_head = np.concatenate([[True], padded[1:] != padded[:-1]])
    different, index = np.unique(padded[is_head], return_inverse=True)
    numbers = index.astype(np.int32)[np.cumsum(is_head) - 1]
    return [name.decode("ascii") for name in different.tolist()], numbers


def _read_seconds(path: Path, ids: TextColumn) -> np.ndarray | None:
    """Durations of all utterances; NaN if there is no table, None if it is not regular or complete."""
    if not is_regular(path):
        return np.full(len(ids), np.nan)
    table = read_regular_table(path, columns=2)
    if table is None or not are_equal(table[0], ids):
        return None
    try:
        seconds = table[1].padded().astype(np.float64)
    except ValueError:
        return None
    return seconds if ((seconds > 0) & (seconds < LONGEST)).all() else None


def _is_inverse(path: Path, ids: TextColumn, speakers: Sequence[str], speaker_index: np.ndarray) -> bool:
    """Whether spk2utt lists the utterances of every speaker; True if spk2utt is missing."""
    if not is_regular(path):
        return True
    words = split_words(path)
    order = np.argsort(speaker_index, kind="stable")
    counts = np.bincount(speaker_index)
    heads = np.cumsum(counts + 1) - counts - 1
    if words is None or len(words) != len(ids) + len(speakers):
        return False
    is_head = np.zeros(len(words), dtype=bool)
    is_head[heads] = True
    ends_line = words.text[words.ends] == NEWLINE
    return (
        bool((ends_line == np.roll(is_head, -1)).all())
        and are_equal(words.take(np.flatnonzero(is_head)), TextColumn.of(speakers))
        and are_equal(words.take(np.flatnonzero(~is_head)), ids.take(order))
    )
