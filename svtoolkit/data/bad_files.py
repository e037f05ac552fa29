"""Utterances whose audio cannot be used: each is listed with the reason, and too many of them end the work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.temporary_names import remove_abandoned

BAD_FILES = "bad_files.tsv"
HEADER = "utterance\tfile\treason\n"
SHOWN = 3
"""Bad files that a message names."""


@dataclass(frozen=True)
class BadFile:
    """An utterance that could not be used: its file and the sentence that says why."""

    utterance_id: str
    path: str
    reason: str


def check_max_bad(share: float, *, of: str = "utterances", key: str = "max_bad", all_of_them: bool = True) -> None:
    """Refuse what is no share of files.

    Args:
        of: what it is a share of.
        key: what sets it.
        all_of_them: every file may be bad; otherwise something has to be left.

    Raises:
        UserError: the share is below 0, above 1, or 1 where something has to be left.
    """
    if not (0 <= share <= 1 if all_of_them else 0 <= share < 1):
        expected = " from 0 to 1" if all_of_them else ": 0 or more, below 1"
        raise UserError(f"{key} is {share}, expected a share of the {of}{expected}")


def count_allowed(max_bad: float, utterances: int) -> int:
    """How many utterances may be bad: a share of them; where it is above 0, one always may."""
    return max(1, int(max_bad * utterances)) if max_bad > 0 else 0


class BadFiles:
    """The bad files found so far, and how many there may be.

    Args:
        folder: that has or gets the list.
        utterances: of all the work.
        max_bad: share of them that may be bad; where it is above 0, one always may.
        key: what sets it.

    Attributes:
        found: in the order they were added.
        allowed: their greatest number.
    """

    def __init__(self, folder: Path, utterances: int, max_bad: float, key: str = "max_bad") -> None:
        self.found: list[BadFile] = []
        self.allowed = count_allowed(max_bad, utterances)
        self._folder, self._utterances, self._max_bad, self._key = folder, utterances, max_bad, key

    def add(self, bad: Iterable[BadFile]) -> None:
        """Add some.

        Raises:
            UserError: there are more than are allowed.
        """
        self.found += bad
        if len(self.found) > self.allowed:
            raise self.refusal()

    def refusal(self) -> UserError:
        """The sentence that says so, with why the first few are bad."""
        reasons = "; ".join(item.reason for item in self.found[:SHOWN])
        return UserError(
            f"{len(self.found)} of {self._utterances} files cannot be used, with {self._key}={self._max_bad:g} "
            f"{self.allowed} may be: {reasons}; {self._folder / BAD_FILES} lists them: repair or drop them "
            f"(`svt validate --fix`), or raise {self._key}, and run the same command again, "
            "which keeps what is finished"
        )


@contextmanager
def listing_bad_files(folder: Path, utterances: int, max_bad: float) -> Iterator[BadFiles]:
    """Bad files for a block; however it ends, `bad_files.tsv` of the folder lists those found: utterance, file, reason.

    Args:
        folder: where the list is written; none is there where nothing was found.
        utterances: of all the work.
        max_bad: share of them that may be bad; where it is above 0, one always may.
    """
    bad = BadFiles(folder, utterances, max_bad)
    try:
        yield bad
    finally:
        write_bad_files(folder, bad.found)


def write_bad_files(folder: Path, found: Iterable[BadFile]) -> None:
    """Write `bad_files.tsv` of a folder; where nothing was found, none is there afterwards."""
    lines = [
        hide_credentials(f"{item.utterance_id}\t{item.path}\t{' '.join(item.reason.split())}\n")
        for item in sorted(found, key=lambda item: item.utterance_id)
    ]
    if lines:
        with atomic_write(folder / BAD_FILES) as stream:
            stream.writelines([HEADER, *lines])
    else:
        remove_abandoned(folder / BAD_FILES)
        (folder / BAD_FILES).unlink(missing_ok=True)


def read_bad_files(folder: Path) -> list[BadFile]:
    """What `bad_files.tsv` of a folder lists; nothing where there is none."""
    path = folder / BAD_FILES
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[1:] if path.is_file() else []
    rows = (line.split("\t", 2) for line in lines)
    return [BadFile(*row) for row in rows if len(row) == 3]
