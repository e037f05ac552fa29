"""Utterances whose audio cannot be used: each is listed with the reason, and too many of them end the work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from svtoolkit.system.atomic import atomic_write

BAD_FILES = "bad_files.tsv"
SHOWN = 3
"""Bad files that a message names."""


@dataclass(frozen=True)
class BadFile:
    """An utterance that could not be used: its file and the sentence that says why."""

    utterance_id: str
    path: str
    reason: str


def count_allowed(max_bad: float, utterances: int) -> int:
    """How many utterances may be bad: a share of them; where it is above 0, one always may."""
    return max(1, int(max_bad * utterances)) if max_bad > 0 else 0


def show_reasons(bad: Sequence[BadFile]) -> str:
    """What a message says of them: why the first few are bad."""
    return "; ".join(item.reason for item in bad[:SHOWN])


def write_bad_files(folder: Path, bad: Iterable[BadFile]) -> None:
    """List them in `bad_files.tsv`: utterance, file and reason; no list where there is nothing to tell."""
    lines = [
        f"{item.utterance_id}\t{item.path}\t{' '.join(item.reason.split())}\n"
        for item in sorted(bad, key=lambda item: item.utterance_id)
    ]
    if not lines:
        (folder / BAD_FILES).unlink(missing_ok=True)
        return
    with atomic_write(folder / BAD_FILES) as stream:
        stream.writelines(["utterance\tfile\treason\n", *lines])
