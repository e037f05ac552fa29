"""Weights & Biases."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from svtoolkit.errors import hide_credentials
from svtoolkit.loggers.run_logger import FINISHED, LoggedRun, RunLogger, figures

PROJECT = "svtoolkit"

LAST_SECONDS = 120.0
"""The end of a run waits so long at most for a server; `wandb sync` sends what is left."""


class WandbLogger(RunLogger):
    """A run of Weights & Biases, resumed under the same id.

    A server keeps the steps that it has, which a resumed run makes again with the same numbers: those are not sent.
    Offline every process writes a folder of its own under logs/wandb, with the same id and all records from the first
    on: some versions of `wandb sync` replace a run by a later folder, and none is missing then.

    Args:
        project, entity, group: None: WANDB_PROJECT (or svtoolkit), WANDB_ENTITY, WANDB_RUN_GROUP.
        run_name: None: WANDB_NAME, or that of its folder.
        mode: online, offline or disabled; None: WANDB_MODE, or online.
    """

    def __init__(
        self, run: LoggedRun, *, project: str | None, entity: str | None, group: str | None, run_name: str | None,
        mode: str | None,
    ) -> None:  # fmt: skip
        import wandb

        stored = run.stored_id("wandb")
        with _discreet_arguments():
            self._run = wandb.init(
                project=project or os.environ.get("WANDB_PROJECT") or PROJECT,
                entity=entity,
                group=group,
                name=run_name or os.environ.get("WANDB_NAME") or run.name,
                mode=mode,
                id=stored or secrets.token_hex(8),
                resume="allow",
                dir=str(run.folder),
                reinit="create_new",
                settings=wandb.Settings(console="off", finish_timeout=LAST_SECONDS, finish_timeout_raises=True),
            )
        if stored is None:
            run.store_id("wandb", self._run.id)
        self._run.config.update(dict(run.config), allow_val_change=True)
        self._first_step = self._run.step if self._run.resumed else 0
        for record in run.records:
            self.log(record)

    def log(self, record: Mapping[str, Any]) -> None:
        values, step = figures(record), record.get("step", 0)
        if values and step >= self._first_step:
            self._run.log({**values, "epoch": record.get("epoch", 0)}, step=step)

    def close(self, outcome: str) -> None:
        self._run.finish(exit_code=0 if outcome == FINISHED else 1)


@contextmanager
def _discreet_arguments() -> Iterator[None]:
    """Weights & Biases sends the words of the command, too: inside the block they are without credentials of URLs."""
    with patch.object(sys, "argv", [hide_credentials(word) for word in sys.argv]):
        yield
