"""Verification trials, one a line: `enrol test target|nontarget`, `1 enrol test` or `enrol test 1`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from svtoolkit.data.numbered_ids import NumberedIds, number_ids
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.columns import read_columns
from svtoolkit.system.regular_file import is_regular

LABELS = {"target": True, "nontarget": False}
DIGITS = {"1": True, "0": False}
TRIAL_FORM = "`enrol test target` or `enrol test nontarget`"

Trial = tuple[str, str, bool]
"""Enrolment, test, whether they share a speaker."""


class Form(NamedTuple):
    """How the lines of a list are written: where the label is, what it is called, and the line in words."""

    label_at: int
    labels: Mapping[str, bool]
    words: str

    def parse(self, fields: Sequence[str]) -> Trial | None:
        """None where the line has another form."""
        if len(fields) != 3 or fields[self.label_at] not in self.labels:
            return None
        enrol, test = (field for place, field in enumerate(fields) if place != self.label_at % 3)
        return enrol, test, self.labels[fields[self.label_at]]


FORMS = (
    Form(-1, LABELS, TRIAL_FORM),
    Form(0, DIGITS, "`1 enrol test` or `0 enrol test`"),
    Form(-1, DIGITS, "`enrol test 1` or `enrol test 0`"),
)
"""Kaldi's; that of VoxCeleb's lists; that of others. A list has one of them."""

ANY_FORM = f"{TRIAL_FORM}, or 1 and 0 for these words, at the end or in front"


@dataclass(frozen=True)
class Trials:
    """Pairs of utterances and whether they share a speaker.

    Attributes:
        enrol: utterance ids, one a trial.
        test: utterance ids, one a trial.
        target: bool, shape (trials,).
    """

    enrol: Sequence[str]
    test: Sequence[str]
    target: np.ndarray

    @classmethod
    def of(cls, listed: Sequence[tuple[str, str, bool]]) -> Trials:
        """Trials of (enrolment, test, whether they share a speaker)."""
        target = np.array([trial[2] for trial in listed], dtype=bool)
        return cls([trial[0] for trial in listed], [trial[1] for trial in listed], target)

    def __len__(self) -> int:
        return len(self.target)

    def take(self, rows: np.ndarray) -> Trials:
        """These trials alone."""
        enrol, test = (NumberedIds(self.names, side[rows]) for side in self.numbered)
        return Trials(enrol, test, self.target[rows])

    @cached_property
    def _numbering(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        return number_ids(self.enrol, self.test)

    @property
    def names(self) -> list[str]:
        """The utterances, in the order in which they appear on the enrolment side and then the test side."""
        return self._numbering[0]

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Utterance -> its place in ``names``."""
        return {name: number for number, name in enumerate(self.names)}

    @property
    def numbered(self) -> tuple[np.ndarray, np.ndarray]:
        """Places in ``names`` of both sides; int64, both of shape (trials,)."""
        return self._numbering[1:]

    @property
    def utterances(self) -> Set[str]:
        return self.numbers.keys()


def read_trials(path: str | Path) -> Trials:
    """Read a trial list of one of ``FORMS``.

    Raises:
        UserError: missing or empty file, a line of another form; names file, line and remedy.
    """
    content = _read_bytes(path)
    if (plain := _plain_trials(content)) is not None:
        return plain
    listed = []
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line_of_error = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line_of_error}: is no UTF-8 text; re-encode the list") from error
    for number, _, trial in parse_trials(path):
        if isinstance(trial, str):
            raise UserError(f"{path}:{number}: {trial}")
        listed.append(trial)
    if not listed:
        raise UserError(f"{path}: the trial list is empty; expected lines {ANY_FORM}")
    return Trials.of(listed)


def _plain_trials(content: bytes) -> Trials | None:
    """Of a list of plain lines that can have one form alone; None of any other."""
    columns = read_columns(content, 3)
    if columns is None:
        return None
    found = [(form, columns.places(form.label_at % 3, list(form.labels))) for form in FORMS]
    possible = [(form, places) for form, places in found if places is not None]
    if len(possible) != 1:
        return None
    [(form, places)] = possible
    names, [enrol, test] = columns.distinct(*(column for column in range(3) if column != form.label_at % 3))
    return Trials(NumberedIds(names, enrol), NumberedIds(names, test), np.array(list(form.labels.values()))[places])


def trial_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a trial list that are not blank, with their numbers from 1.

    Raises:
        UserError: there is no such file.
    """
    content = _read_bytes(path).decode("utf-8-sig", "backslashreplace")
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            yield number, line.strip()


def parse_trials(path: str | Path) -> Iterator[tuple[int, str, Trial | str]]:
    """The lines of a trial list, all of one form: that of the first line which can have one form alone.

    Returns:
        number from 1 and text of each line that is not blank, and its trial, or a sentence that says why it has none.

    Raises:
        UserError: there is no such file.
    """
    form, decided = _find_form(path)
    for number, line in trial_lines(path):
        if form is not None:
            trial = form.parse(line.split())
            yield number, line, trial or f"found {line!r}, expected {form.words}, as on line {decided}"
        elif _possible_forms(line):
            sentence = (
                f"found {line!r}, in which the first or the last field may be the label, and no line of the list tells "
                f"which; expected {TRIAL_FORM}"
            )
            yield number, line, sentence
        else:
            yield number, line, f"found {line!r}, expected {ANY_FORM}"


def _find_form(path: str | Path) -> tuple[Form | None, int]:
    """Of a list, and the line that tells it; None where no line does."""
    for number, line in trial_lines(path):
        possible = _possible_forms(line)
        if len(possible) == 1:
            return possible[0], number
    return None, 0


def _possible_forms(line: str) -> list[Form]:
    fields = line.split()
    return [form for form in FORMS if form.parse(fields) is not None]


def write_trials(path: str | Path, trials: Trials) -> None:
    with atomic_write(path) as stream:
        for enrol, test, target in zip(trials.enrol, trials.test, trials.target, strict=True):
            stream.write(f"{enrol} {test} {'target' if target else 'nontarget'}\n")


def hash_trials(path: str | Path) -> str:
    """SHA-256 of the list as it stands on disk: two results are comparable where it is equal.

    Raises:
        UserError: there is no such file.
    """
    return hashlib.sha256(_read_bytes(path)).hexdigest()


def _read_bytes(path: str | Path) -> bytes:
    if not is_regular(path):
        raise UserError(f"{path}: there is no such trial list; expected lines {ANY_FORM}")
    return Path(path).read_bytes()
