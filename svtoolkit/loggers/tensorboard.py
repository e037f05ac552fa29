"""TensorBoard: a curve for every figure, and the configuration as a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from svtoolkit.loggers.run_logger import LoggedRun, RunLogger, figures
from svtoolkit.system.plain_data import flatten

FOLDER = "tensorboard"


class TensorBoardLogger(RunLogger):
    """logs/tensorboard; what an earlier process wrote after the step that is resumed at is hidden (``purge_step``)."""

    def __init__(self, run: LoggedRun) -> None:
        folder = run.folder / FOLDER
        is_new = not folder.is_dir() or not any(folder.iterdir())
        self._writer = SummaryWriter(str(folder), purge_step=run.resume_step + 1)
        rows = "\n".join(f"| {key} | `{value}` |" for key, value in flatten(run.config).items())
        self._writer.add_text("config", f"| key | value |\n|---|---|\n{rows}", run.resume_step)
        if is_new:
            for record in run.records:
                self.log(record)

    def log(self, record: Mapping[str, Any]) -> None:
        for name, value in figures(record).items():
            self._writer.add_scalar(name, value, record["step"])

    def flush(self) -> None:
        self._writer.flush()

    def close(self, outcome: str) -> None:
        self._writer.close()
