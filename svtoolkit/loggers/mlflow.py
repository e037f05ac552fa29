"""MLflow: figures as metrics, the configuration as parameters.

Through ``MlflowClient`` alone: the run that a script has opened by ``mlflow.start_run`` is none of ours.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from svtoolkit.loggers.background import Background
from svtoolkit.loggers.run_logger import FAILED, FINISHED, STOPPED, LoggedRun, RunLogger, figures
from svtoolkit.system.plain_data import flatten

log = logging.getLogger(__name__)

STORE, ARTIFACTS = "mlflow.db", "mlflow_artifacts"
"""In the folder of the logs, where no tracking URI is set."""

EXPERIMENT = "svtoolkit"
PARAMS_A_CALL, LONGEST_PARAM = 100, 500
"""Limits of MLflow's servers; newer ones take longer values."""

STATUS = {FINISHED: "FINISHED", STOPPED: "KILLED", FAILED: "FAILED"}

IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""Of the calls that a run waits for before its first step."""

QUIET = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
"""MLflow would print the address of its server, with the password in it."""

LAST_SECONDS = 60.0
"""The end of a run waits so long at most for a server."""


class MLflowLogger(RunLogger):
    """A run of an MLflow server or, without one, of a database in the folder of the logs.

    A resumed run is resumed there too; figures that the server has already are not sent again, those that an earlier
    process could not deliver are.

    Args:
        tracking_uri: None: MLFLOW_TRACKING_URI, or the run's own database.
        experiment: None: MLFLOW_EXPERIMENT_NAME, or svtoolkit.
        run_name: None: that of its folder.
    """

    def __init__(
        self, run: LoggedRun, *, tracking_uri: str | None, experiment: str | None, run_name: str | None
    ) -> None:
        from mlflow import MlflowClient

        uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        own_artifacts = None if uri else (run.folder / ARTIFACTS).absolute().as_uri()
        self._client = MlflowClient(uri or f"sqlite:///{(run.folder / STORE).absolute()}")
        with _soon():
            self._run_id, params = self._find(run.stored_id("mlflow"))
            self._is_known = self._run_id is not None
            if self._run_id is None:
                wanted = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
                self._run_id = self._create(wanted, run_name or run.name, own_artifacts)
                run.store_id("mlflow", self._run_id)
            self._log_params(run.config, params)
        log.info("MLflow: run %s of %s", self._run_id, uri or run.folder / STORE)
        self._last_steps: dict[str, int] = {}
        self._background = Background("mlflow")
        for record in run.records:
            self.log(record)

    def log(self, record: Mapping[str, Any]) -> None:
        now = int(1000 * time.time())
        self._background.put(lambda: self._send(figures(record), int(record.get("step", 0)), now))

    def close(self, outcome: str) -> None:
        self._background.put(lambda: self._end(STATUS[outcome]))
        self._background.finish(LAST_SECONDS)

    def _find(self, run_id: str | None) -> tuple[str | None, set[str]]:
        """A run of that id, running again, and the names of its parameters; None where there is none any more."""
        from mlflow.exceptions import MlflowException

        if run_id is None:
            return None, set()
        try:
            params = set(self._client.get_run(run_id).data.params)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            log.warning("MLflow does not know the run %s any more: a new one begins", run_id)
            return None, set()
        self._client.update_run(run_id, status="RUNNING")
        return run_id, params

    def _create(self, experiment: str, run_name: str, artifacts: str | None) -> str:
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self._client.create_experiment(experiment, artifacts)
        return str(self._client.create_run(number, run_name=run_name).info.run_id)

    def _log_params(self, config: Mapping[str, Any], known: set[str]) -> None:
        """Those that the run has not: MLflow lets no parameter be changed."""
        from mlflow.entities import Param

        params = [Param(key, f"{value}"[:LONGEST_PARAM]) for key, value in flatten(config).items() if key not in known]
        for start in range(0, len(params), PARAMS_A_CALL):
            self._client.log_batch(self._run_id, params=params[start : start + PARAMS_A_CALL])

    def _end(self, status: str) -> None:
        with patch.dict(os.environ, QUIET):
            self._client.set_terminated(self._run_id, status=status)

    def _send(self, values: Mapping[str, float], step: int, milliseconds: int) -> None:
        from mlflow.entities import Metric

        new = [Metric(key, value, milliseconds, step) for key, value in values.items() if step > self._last_step(key)]
        if new:
            self._client.log_batch(self._run_id, metrics=new)

    def _last_step(self, key: str) -> int:
        """Up to which the server has a figure, asked once."""
        if self._is_known and key not in self._last_steps:
            history = self._client.get_metric_history(self._run_id, key)
            self._last_steps[key] = max((metric.step for metric in history), default=-1)
        return self._last_steps.get(key, -1)


@contextmanager
def _soon() -> Iterator[None]:
    """Inside the block a server that does not answer is given up after seconds, not minutes, unless told otherwise."""
    with patch.dict(os.environ, {name: value for name, value in IMPATIENT.items() if name not in os.environ}):
        yield
