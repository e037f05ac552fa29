"""The loggers of a run, none of which is ever the reason why it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from svtoolkit.loggers.run_logger import RunLogger

log = logging.getLogger(__name__)


class Loggers:
    """Tells each logger; one that raises is told nothing any more, and the log says so once."""

    def __init__(self, loggers: Mapping[str, RunLogger] | None = None) -> None:
        self._loggers = dict(loggers or {})

    def log(self, record: Mapping[str, Any]) -> None:
        self._each(lambda logger: logger.log(record))

    def flush(self) -> None:
        self._each(lambda logger: logger.flush())

    def close(self, outcome: str) -> None:
        self._each(lambda logger: logger.close(outcome))
        self._loggers.clear()

    def _each(self, call: Callable[[RunLogger], object]) -> None:
        for name, logger in list(self._loggers.items()):
            try:
                call(logger)
            except Exception as error:
                del self._loggers[name]
                log.warning(
                    "logger %s has failed (%s): it gets no more figures of this run, logs/history.jsonl has them all; "
                    "it is tried again when the run is resumed", name, one_line(error),
                )  # fmt: skip


def one_line(error: Exception) -> str:
    """What it says, or what it is."""
    return " ".join(f"{error}".split()) or type(error).__name__
