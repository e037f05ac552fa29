"""The record of a run: JSON lines for the report, TensorBoard for watching."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from svtoolkit.runs.run_history import read_history
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

HISTORY = "history.jsonl"


class History:
    """logs/history.jsonl and logs/tensorboard of a run.

    Records are dicts with ``kind`` (step or epoch) and ``step``. A resumed run drops what lies after the step that it
    resumes at, so that no step stands twice. A full disk stops neither the run nor loses a record: they stay in
    memory until they can be written.

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
        self._tensorboard: SummaryWriter | None = SummaryWriter(
            str(Path(folder) / "tensorboard"), purge_step=resume_step + 1
        )

    def add(self, record: dict[str, Any]) -> None:
        """Append a record; numbers other than step and epoch become TensorBoard scalars ``kind/name``."""
        self.records.append(record)
        if self._complete:
            try:
                self._stream.write(_line(record))
                self._stream.flush()
            except OSError as error:
                self._complete = False
                log.error("%s could not be written (%s); its records are kept in memory", self.path, error)
        self._draw(record)

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
        with self._tensorboard_or_none() as tensorboard:
            if tensorboard is not None:
                tensorboard.flush()

    def close(self) -> None:
        """Let go of the files, after ``sync`` where it matters that all is written."""
        self._close_stream()
        with self._tensorboard_or_none() as tensorboard:
            if tensorboard is not None:
                tensorboard.close()

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

    def _draw(self, record: dict[str, Any]) -> None:
        with self._tensorboard_or_none() as tensorboard:
            if tensorboard is None:
                return
            for name, value in record.items():
                if name not in ("kind", "step", "epoch") and isinstance(value, int | float) and math.isfinite(value):
                    tensorboard.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    @contextmanager
    def _tensorboard_or_none(self) -> Iterator[SummaryWriter | None]:
        try:
            yield self._tensorboard
        except OSError as error:
            self._tensorboard = None
            log.error(
                "TensorBoard's files cannot be written (%s): its curves end here, those of %s do not", error, self.path
            )


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"
