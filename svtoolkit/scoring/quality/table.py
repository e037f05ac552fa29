"""Quality measures of utterances as a table: a header `utterance MEASURE ...`, then a line an utterance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import first_of
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.plain_data import MalformedError, read_text
from svtoolkit.system.regular_file import is_regular

KEY = "utterance"
FORM = f"a header `{KEY} MEASURE ...`, then lines of an utterance and a number for each measure"


@dataclass(frozen=True)
class QualityTable:
    """Quality of some utterances.

    Attributes:
        measures: names of the columns.
        utterances: names of the rows, no two alike.
        values: finite, float64, shape (utterances, measures).
        path: of the file it was read from, for messages.
    """

    measures: list[str]
    utterances: list[str]
    values: np.ndarray
    path: str = "the table"

    def of(self, utterances: Sequence[str]) -> np.ndarray:
        """Values of these utterances, (utterances, measures).

        Raises:
            UserError: some of them are not in the table; names the first.
        """
        row = {name: number for number, name in enumerate(self.utterances)}
        missing = [name for name in utterances if name not in row]
        if missing:
            raise UserError(
                f"{self.path}: has no line for {len(missing)} of {len(utterances)} utterances of the trials: "
                f"{first_of(missing)}; measure them with `svt quality`"
            )
        return self.values[[row[name] for name in utterances]]


def write_quality(path: str | Path, table: QualityTable) -> None:
    """Write a table with six decimals; the file is replaced in one step."""
    with atomic_write(path) as stream:
        stream.write(f"{' '.join([KEY, *table.measures])}\n")
        for utterance, row in zip(table.utterances, table.values.tolist(), strict=True):
            stream.write(f"{' '.join([utterance, *(f'{value:.6f}' for value in row)])}\n")


def read_quality(path: str | Path) -> QualityTable:
    """Read a table, of `svt quality` or of any other tool.

    Raises:
        UserError: missing file, no header, a line of another form, a value that is not a finite number, an utterance
            that is listed twice; names file and line.
    """
    if not is_regular(path):
        raise UserError(f"{path}: there is no such table; expected {FORM}, as `svt quality` writes it")
    try:
        lines = [line.split() for line in read_text(path).splitlines()]
    except MalformedError as error:
        raise UserError(f"{path}:{error.line}: is no UTF-8 text ({error}); re-encode it") from error
    header = lines[0] if lines else []
    measures = header[1:]
    if header[:1] != [KEY] or not measures or len(set(measures)) < len(measures):
        raise UserError(f"{path}:1: found {' '.join(header)!r:.80}, expected {FORM}; no measure may stand there twice")
    first: dict[str, int] = {}
    values: list[list[float]] = []
    for number, fields in enumerate(lines[1:], start=2):
        if not fields:
            continue
        if len(fields) != len(header):
            raise UserError(
                f"{path}:{number}: found {' '.join(fields)!r:.80}, expected {len(header)} columns: {' '.join(header)}"
            )
        if fields[0] in first:
            raise UserError(
                f"{path}:{number}: {fields[0]!r} is listed twice (first on line {first[fields[0]]}); keep one"
            )
        first[fields[0]] = number
        values.append([_number(path, number, *pair) for pair in zip(measures, fields[1:], strict=True)])
    if not values:
        raise UserError(f"{path}: lists no utterance; expected {FORM}")
    return QualityTable(measures, list(first), np.array(values), str(path))


def _number(path: str | Path, line: int, measure: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(
            f"{path}:{line}: {measure} is {text!r}, expected a finite number; measure the utterance again, or drop its "
            "trials"
        )
    return value
