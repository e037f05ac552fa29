"""The text tables of a data directory: `key value...`, one entry a line, UTF-8, sorted in C locale, keys unique."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.regular_file import is_regular

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

MISSING_TABLE = "missing-table"
"""Code of the fault that a table is not there which has to be."""

LONGEST = 1e9
"""Seconds, some thirty years: no recording is longer."""

TO_THE_END = -1
"""Kaldi's mark for a segment that runs to the end of its recording."""


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a data directory.

    Attributes:
        code: short name of the rule that is broken, such as ``duplicate`` or ``missing-audio``.
        where: ``file:line`` or ``file``, relative to the data directory.
        message: what was found, what was expected, what to do.
        utterance: the utterance (or recording) that would have to be dropped to repair it, if any.
        speaker: the speaker who would have to be dropped to repair it, if any.
    """

    code: str
    where: str
    message: str
    utterance: str | None = None
    speaker: str | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.code}]"


@dataclass(frozen=True)
class Segment:
    """A stretch of a recording, in seconds; ``end`` is None where the segment runs to the end of the file."""

    recording: str
    start: float
    end: float | None


def require_table(path: Path, expected: str) -> dict[str, tuple[int, str]]:
    """A table of two columns in any order, which has to be there and without fault.

    Args:
        expected: what its lines are, for the message where there is no such file.

    Raises:
        UserError: missing, empty or malformed; names file and line.
    """
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected lines {expected}")
    faults: list[Fault] = []
    table = read_table(path, faults, columns=2)
    fatal = [fault for fault in faults if fault.code != "unsorted"]
    if fatal:
        raise UserError(f"{path.parent}/{fatal[0]}")
    return table


def read_table(path: Path, faults: list[Fault], columns: int | None = None) -> dict[str, tuple[int, str]]:
    """Read a table as far as it can be read.

    Args:
        path: the file; one that is missing is an empty table without fault.
        faults: faults of form, order and uniqueness are appended here.
        columns: number of columns that every line must have, key included; None: two or more.

    Returns:
        key -> (line number from 1, rest of the line); the first of duplicate entries wins.
    """
    table: dict[str, tuple[int, str]] = {}
    if not is_regular(path):
        return table
    content = path.read_bytes()
    if content.startswith(BYTE_ORDER_MARK):
        faults.append(Fault("encoding", f"{path.name}:1", "the file starts with a byte order mark; save it without"))
        content = content.removeprefix(BYTE_ORDER_MARK)
    previous = ""
    for number, raw in enumerate(content.split(b"\n"), start=1):
        where = f"{path.name}:{number}"
        line = raw.decode("utf-8", "backslashreplace").strip()
        if not line:
            continue
        key, *rest = line.split(maxsplit=1)
        if b"\0" in raw or raw.decode("utf-8", "ignore").encode() != raw:
            faults.append(Fault("encoding", where, f"{line!r} is not UTF-8; re-encode the list", key))
            continue
        found = len(line.split())
        if not rest or (columns is not None and found != columns):
            expected = f"{columns} columns" if columns else "a key and a value"
            faults.append(Fault("malformed", where, f"found {line!r}, expected {expected}", key))
        elif key in table:
            first, value = table[key]
            # Equal lines lose nothing when one goes; lines that contradict each other leave the truth unknown.
            contradicted = key if value != rest[0] else None
            message = f"{key!r} is listed twice (first on line {first}); keep one"
            faults.append(Fault("duplicate", where, message, contradicted))
        else:
            table[key] = (number, rest[0])
        if key < previous:
            message = f"{key!r} comes after {previous!r}; sort with LC_ALL=C sort"
            faults.append(Fault("unsorted", where, message))
        previous = key
    if not table:
        faults.append(Fault("empty-table", path.name, "the file holds no entry"))
    return table


def write_table(path: Path, table: Mapping[str, str]) -> None:
    """Write a table, sorted; the file is replaced in one step.

    Raises:
        UserError: a key or value that no table can hold: white space in a key, a line end in a value,
            characters that have no UTF-8 form.
    """
    for key, value in table.items():
        if key.split() != [key] or value.strip() != value or not value or "\n" in value:
            raise UserError(
                f"{path}: the entry {key!r} {value!r} cannot be written; expected a key without white space and "
                "a value on one line without white space around it; rename the file or id"
            )
        if f"{key} {value}" != f"{key} {value}".encode("utf-8", "ignore").decode():
            raise UserError(f"{path}: the entry {key!r} {value!r} has no UTF-8 form; rename the file or folder")
    with atomic_write(path) as stream:
        stream.writelines(f"{key} {table[key]}\n" for key in sorted(table))


def parse_segments(table: Mapping[str, tuple[int, str]], faults: list[Fault]) -> dict[str, Segment]:
    """Entries of `segments`; faults of those that are none are appended."""
    segments: dict[str, Segment] = {}
    for utterance, (line, value) in table.items():
        recording, *times = value.split()
        try:
            start, end = (float(time) for time in times)
        except ValueError:
            start = end = float("nan")
        if not (abs(start) < LONGEST and abs(end) < LONGEST):  # nor where they are NaN
            message = f"found {value!r}, expected recording, start and end in seconds"
            faults.append(Fault("malformed", f"segments:{line}", message, utterance))
        elif start < 0 or (end <= start and end != TO_THE_END):
            message = (
                f"{utterance!r} runs from {times[0]} to {times[1]} s; the end must come after the start "
                f"(or be {TO_THE_END}: to the end of the recording)"
            )
            faults.append(Fault("bad-segment", f"segments:{line}", message, utterance))
        else:
            segments[utterance] = Segment(recording, start, None if end == TO_THE_END else end)
    return segments


def parse_durations(table: Mapping[str, tuple[int, str]], faults: list[Fault]) -> dict[str, float]:
    """Entries of `utt2dur` in seconds; faults of those that are none are appended."""
    durations: dict[str, float] = {}
    for utterance, (line, value) in table.items():
        try:
            seconds = float(value)
        except ValueError:
            seconds = float("nan")
        if 0 < seconds < LONGEST:
            durations[utterance] = seconds
        else:
            message = f"found {value!r}, expected a duration in seconds above 0"
            faults.append(Fault("bad-duration", f"utt2dur:{line}", message))
    return durations


def format_segment(segment: Segment) -> str:
    """The line of `segments` without its key; numbers so that they read back as the same numbers."""
    end = str(TO_THE_END) if segment.end is None else repr(float(segment.end))
    return f"{segment.recording} {float(segment.start)!r} {end}"
