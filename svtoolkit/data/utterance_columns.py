"""What a data directory says of its utterances beside their speakers: durations, recordings, sessions, channels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from svtoolkit.data.kaldi_dir import further_tables
from svtoolkit.data.tables import parse_durations, parse_segments, read_table

RECORDING = "recording"
"""Name of the column that `segments` is: utterances cut out of one recording share room and microphone."""


class UtteranceColumns(NamedTuple):
    """Tables of utterances.

    Attributes:
        durations: utterance -> seconds, of `utt2dur` or, without it, of `segments`.
        values: name of a column -> utterance -> value: of `utt2*` under the name of the file, and ``RECORDING``.
    """

    durations: dict[str, float]
    values: dict[str, dict[str, str]]


def read_utterance_columns(folder: Path, utt2spk: Mapping[str, str]) -> UtteranceColumns:
    """The tables of a folder as far as they can be read, of the utterances of ``utt2spk``; none has to be there."""
    segments = parse_segments(read_table(folder / "segments", [], 4), [])
    durations = parse_durations(read_table(folder / "utt2dur", [], 2), [])
    of_segments = {name: one.end - one.start for name, one in segments.items() if one.end is not None}
    values = {name: table for name, table in further_tables(folder, utt2spk) if name.startswith("utt2")}
    if segments:
        values[RECORDING] = {name: segment.recording for name, segment in segments.items()}
    return UtteranceColumns(of_segments | durations, {name: table for name, table in values.items() if table})
