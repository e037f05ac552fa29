"""Reading the history of a training run: records of steps and epochs, one JSON object a line."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from svtoolkit.errors import UserError

log = logging.getLogger(__name__)


def read_history(path: str | Path) -> list[dict[str, Any]]:
    """Read a training history of JSON lines, each an object with a ``kind`` such as ``step`` or ``epoch``.

    A last line that was never finished is what a killed run leaves behind: it is left out, and the log says so.

    Raises:
        UserError: missing file, or another line that is no such object; names file, line and remedy.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"{file}: there is no such training history; expected a file of JSON lines, one record a line")
    lines = file.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8"))
        except ValueError as error:  # also what undecodable bytes raise
            if number == len(lines):  # the line end is missing
                log.warning("%s:%d: left out an unfinished last record", file, number)
                break
            raise _malformed(file, number, line) from error
        if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
            raise _malformed(file, number, line)
        records.append(record)
    return records


def _malformed(file: Path, number: int, line: bytes) -> UserError:
    found = line.decode("utf-8", "replace")
    shown = found if len(found) <= 80 else f"{found[:79]}…"
    return UserError(
        f'{file}:{number}: found {shown!r}, expected a JSON object with a "kind", such as '
        '{"kind": "step", "step": 10, "loss": 5.1}; remove the line or restore the file'
    )
