"""svt train: a speaker embedding network, end to end; with --dry-run, what that would take."""

from __future__ import annotations

import logging
from pathlib import Path

from svtoolkit.config import TrainConfig
from svtoolkit.runs.provenance import RUN_RECORD, append_command
from svtoolkit.system.output import say_next
from svtoolkit.training.launch import launch

log = logging.getLogger(__name__)


def dry_run(config: TrainConfig) -> int:
    """Say what the run would take."""
    from svtoolkit.training.dry_run import dry_run as forecast

    forecast(config)
    return 0


def run(config: TrainConfig, command_line: str) -> int:
    """Train; the exit status is 128 + signal where a signal stopped the run."""
    stopped_by = launch(config)
    append_command(Path(config.exp_dir) / RUN_RECORD, command_line)
    if stopped_by is None:
        log.info("finished: %s", config.exp_dir)
        say_next("svt", "average", config.exp_dir)
        return 0
    log.info("stopped by signal %d, state saved; the same command resumes from here", stopped_by)
    return 128 + stopped_by
