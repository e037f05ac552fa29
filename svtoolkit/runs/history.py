"""The record of a run: JSON lines for the report, and for the loggers that are told of each."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from svtoolkit.loggers.all_loggers import Loggers
from svtoolkit.loggers.run_logger import FINISHED
from svtoolkit.runs.run_history import read_history
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

HISTORY = "history.jsonl"


class History:
    """logs/history.jsonl of a run.

    Records are dicts with ``kind`` (step or epoch) and ``step``. A resumed run drops what lies after the step that it
    resumes at, so that no step stands twice. A full disk stops neither the run nor loses a record: they stay in
    memory until they can be written.

    Attributes:
        loggers: told of each record that is added.

    Raises:
        UserError: the history that is there is malformed elsewhere than in a torn last line.
        OSError: the folder cannot be written to.
    """

    def __init__(self, folder: str | Path, *, resume_step: int) -> None:
        self.path = Path(folder) / HISTORY
        before = read_history(self.path) if is_regular(self.path) else []
        self.records = [record for record in before if record.get("step", 0) <= resume_step]
        if resume_step and not self.records:
            log.warning("%s: the records up to step %d are missing", self.path, resume_step)
        self._complete = False
        self._rewrite()
        self.loggers = Loggers()

    def add(self, record: dict[str, Any]) -> None:
        """Append a record."""
        self.records.append(record)
        if self._complete:
            try:
                self._stream.write(_line(record))
                self._stream.flush()
            except OSError as error:
                self._complete = False
                log.error("%s could not be written (%s); its records are kept in memory", self.path, error)
        self.loggers.log(record)

    def epochs(self) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == "epoch"]

    def sync(self) -> None:
        """Bring all records to the disk, so that no state is ahead of the history.

        Raises:
            OSError: they cannot be written.
        """
        if not self._complete:
            self._close_stream()
            self._rewrite()
        os.fsync(self._stream.fileno())
        self.loggers.flush()

    def close(self, outcome: str = FINISHED) -> None:
        """Let go of the files, after ``sync`` where it matters that all is written; ``outcome``: for the loggers."""
        self._close_stream()
        self.loggers.close(outcome)

    def _rewrite(self) -> None:
        """The whole file anew: what a stop or a full disk left in the middle of a line cannot be appended to."""
        with atomic_write(self.path) as stream:
            stream.writelines(_line(record) for record in self.records)
        self._stream = self.path.open("a", encoding="utf-8", newline="\n")
        self._complete = True

    def _close_stream(self) -> None:
        try:
            self._stream.close()
        except OSError as error:  # writes what is left in the buffer, which may fail again
            log.debug("%s: %s", self.path, error)


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"
