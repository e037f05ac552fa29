"""What a logger is: told the run once, then every record of its history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svtoolkit.system.atomic import atomic_write

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
"""How a run, or this part of it, ended: at its last step, by a signal that lets it be resumed, with an error."""


@dataclass(frozen=True)
class LoggedRun:
    """What a logger is told of a run when it begins.

    Attributes:
        name: of the folder of the run.
        folder: of its logs.
        config: the whole configuration, nested as in config.yaml, without credentials of URLs.
        resume_step: the step that is resumed after; 0: the run begins.
        records: of the history up to that step.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    resume_step: int
    records: Sequence[Mapping[str, Any]]

    def stored_id(self, logger: str) -> str | None:
        """Under which a resumed run is known to a server; None where it is not, or where the run begins anew."""
        path = self._id_file(logger)
        if not self.resume_step or not path.is_file():
            return None
        return path.read_text(encoding="utf-8").strip() or None

    def store_id(self, logger: str, run_id: str) -> None:
        with atomic_write(self._id_file(logger)) as stream:
            stream.write(f"{run_id}\n")

    def _id_file(self, logger: str) -> Path:
        return self.folder / f"{logger}_run_id"


class RunLogger:
    """Base of the loggers. A target of the registry takes a ``LoggedRun`` and, by keyword, its own settings.

    A logger may raise whatever it likes: the run goes on without it. Where it is chosen for a run that has begun
    without it, it takes the records of ``LoggedRun.records`` too, so that its curves are whole.
    """

    def log(self, record: Mapping[str, Any]) -> None:
        """Take a record: ``kind`` (step or epoch), ``step``, ``epoch`` and figures such as ``loss``."""
        raise NotImplementedError

    def flush(self) -> None:
        """Bring what was logged to the disk; called before each state of the run is saved."""

    def close(self, outcome: str) -> None:
        """The end: ``FINISHED``, ``STOPPED`` or ``FAILED``."""


def figures(record: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a record, by ``kind/name``: step/loss, epoch/validation_eer."""
    return {
        f"{record['kind']}/{name}": value
        for name, value in record.items()
        if name not in ("kind", "step", "epoch") and isinstance(value, int | float) and math.isfinite(value)
    }
