"""Reading the history of a training run: records of steps and epochs, one JSON object a line."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from svtoolkit.errors import UserError
from svtoolkit.system.plain_data import parse_json
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

LARGEST = 2**53
"""Beyond it whole numbers are no numbers of steps, and not all of them floats."""


def read_history(path: str | Path) -> list[dict[str, Any]]:
    """Read a training history of JSON lines, each an object with a ``kind`` such as ``step`` or ``epoch``.

    A last line that was never finished is what a killed run leaves behind: it is left out, and the log says so.

    Raises:
        UserError: missing file, or another line that is no such object; names file, line and remedy.
    """
    file = Path(path)
    if not is_regular(file):
        raise UserError(f"{file}: there is no such training history; expected a file of JSON lines, one record a line")
    lines = file.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = parse_json(line.decode("utf-8"))
        except ValueError as error:  # also what undecodable bytes raise
            if number == len(lines):  # the line end is missing
                log.warning("%s:%d: left out an unfinished last record", file, number)
                break
            raise _malformed(file, number, line) from error
        if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
            raise _malformed(file, number, line)
        if problem := _explain_record(record):
            raise UserError(f"{file}:{number}: {problem}; remove the line or restore the file")
        records.append(record)
    return records


def of_last_stage(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the records of epochs, those whose weights have the shapes of the last one's: of a run in two stages, one."""
    return [record for record in records if record.get("stage") == records[-1].get("stage")]


def _explain_record(record: dict[str, Any]) -> str | None:
    """What is wrong with the figures that a run is resumed and averaged by; None where nothing is."""
    for key in ("step", "epoch"):
        value = record.get(key, 0)
        if type(value) is not int or not 0 <= value < LARGEST:
            return f"found {value!r:.80} as {key!r}, expected a whole number of 0 or more"
    if record["kind"] == "epoch" and "epoch" not in record:
        return "found a record of an epoch without 'epoch', expected its number"
    rate = record.get("validation_eer")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float)):
        return f"found {rate!r:.80} as 'validation_eer', expected a number"
    return None


def _malformed(file: Path, number: int, line: bytes) -> UserError:
    found = line.decode("utf-8", "replace")
    shown = found if len(found) <= 80 else f"{found[:79]}…"
    return UserError(
        f'{file}:{number}: found {shown!r}, expected a JSON object with a "kind", such as '
        '{"kind": "step", "step": 10, "loss": 5.1}; remove the line or restore the file'
    )
