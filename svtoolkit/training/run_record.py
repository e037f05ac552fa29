"""What is recorded of a run while it goes on: its history, and the loggers that are told of it."""

from __future__ import annotations

from pathlib import Path

from svtoolkit.config import TrainConfig
from svtoolkit.loggers.chosen import open_loggers
from svtoolkit.loggers.run_logger import FAILED
from svtoolkit.runs.exp_dir import LOGS, open_history
from svtoolkit.runs.history import History


def open_record(config: TrainConfig, *, resume_step: int) -> History:
    """The history of the run up to the step that it resumes at, with its loggers.

    Raises:
        UserError: it is malformed or cannot be written, or a logger cannot begin.
    """
    logs = Path(config.exp_dir) / LOGS
    history = open_history(logs, resume_step=resume_step)
    try:
        history.loggers = open_loggers(config, logs, resume_step=resume_step, records=history.records.copy())
    except BaseException:
        history.close(FAILED)
        raise
    return history
