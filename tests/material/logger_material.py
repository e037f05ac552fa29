"""Stand-ins of the packages wandb and mlflow: the same calls with the same arguments, and a server in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from svtoolkit.loggers.run_logger import LoggedRun

CONFIG = {"seed": 7, "optim": {"name": "sgd", "lr": 0.1}, "data": {"root": "https://***@host/", "speeds": [1.0, 0.9]}}


def step_record(step: int, loss: float = 1.0) -> dict[str, Any]:
    return {"kind": "step", "step": step, "epoch": 1, "loss": loss, "lr": 0.1}


def epoch_record(step: int, **found: Any) -> dict[str, Any]:
    return {"kind": "epoch", "step": step, "epoch": 1, "loss": 0.5, **found}


def logged_run(folder: Path, records: Sequence[dict[str, Any]] = ()) -> LoggedRun:
    """A run that has come as far as its records."""
    last = max((record["step"] for record in records), default=0)
    return LoggedRun(name="r34", folder=folder, config=CONFIG, resume_step=last, records=list(records))


def install(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """Have a module be found under that name."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None, origin="a stand-in")
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


# ---- Weights & Biases 0.31 ----


@dataclass
class WandbServer:
    """Runs by id; of each what ``init`` was given, and figures by step."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def init(
        self, entity: str | None = None, project: str | None = None, dir: str | None = None, id: str | None = None,
        name: str | None = None, group: str | None = None, mode: str | None = None, reinit: str | None = None,
        resume: str | None = None, settings: Any = None,
    ) -> WandbRun:  # fmt: skip
        assert id is not None
        given = {"entity": entity, "project": project, "name": name, "group": group, "mode": mode, "dir": dir}
        resumed = id in self.runs and mode != "offline"
        run = self.runs.setdefault(id, {"config": {}, "history": {}, "argv": list(sys.argv)})
        run.update(given=given, status=None)
        return WandbRun(id, run, resumed)


class WandbRun:
    def __init__(self, id: str, stored: dict[str, Any], resumed: bool) -> None:
        self.id, self.stored, self.resumed = id, stored, resumed
        self.step = max(stored["history"], default=-1) + 1 if resumed else 0
        self.config = SimpleNamespace(update=lambda given, allow_val_change: stored["config"].update(given))

    def log(self, data: dict[str, Any], step: int | None = None) -> None:
        assert step is not None
        assert step >= self.step, "wandb: steps must be monotonically increasing"
        self.step = step
        self.stored["history"].setdefault(step, {}).update(data)

    def finish(self, exit_code: int | None = None) -> None:
        self.stored["status"] = exit_code


def install_wandb(monkeypatch: pytest.MonkeyPatch) -> WandbServer:
    server = WandbServer()
    install(monkeypatch, "wandb", init=server.init, Settings=lambda **given: given)
    for name in ("PROJECT", "NAME", "MODE"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    return server


# ---- MLflow 3 ----


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class Param(NamedTuple):
    key: str
    value: str


class MlflowException(Exception):  # noqa: N818  # MLflow's own name
    def __init__(self, message: str, error_code: str = "INTERNAL_ERROR") -> None:
        super().__init__(message)
        self.error_code = error_code


@dataclass
class MlflowServer:
    """Runs by id, experiments by name; ``fail``: called before a run is found and before each batch is taken."""

    runs: dict[str, SimpleNamespace] = field(default_factory=dict)
    experiments: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, str | None] = field(default_factory=dict)
    uris: list[str] = field(default_factory=list)
    retries: list[str | None] = field(default_factory=list)
    fail: Callable[[], None] = lambda: None

    def steps(self, run_id: str, key: str) -> list[int]:
        return [metric.step for metric in self.runs[run_id].metrics if metric.key == key]


class MlflowClient:
    server: MlflowServer

    def __init__(self, tracking_uri: str | None = None) -> None:
        assert tracking_uri is not None
        self.server.uris.append(tracking_uri)

    def get_experiment_by_name(self, name: str) -> Any:
        found = self.server.experiments.get(name)
        return found and SimpleNamespace(experiment_id=found)

    def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
        self.server.artifacts[name] = artifact_location
        return self.server.experiments.setdefault(name, str(len(self.server.experiments) + 1))

    def create_run(self, experiment_id: str, run_name: str | None = None) -> Any:
        run_id = f"run{len(self.server.runs)}"
        self.server.runs[run_id] = SimpleNamespace(name=run_name, params={}, metrics=[], status="RUNNING")
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def get_run(self, run_id: str) -> Any:
        self.server.fail()
        if run_id not in self.server.runs:
            raise MlflowException(f"Run with id={run_id} not found", "RESOURCE_DOES_NOT_EXIST")
        return SimpleNamespace(data=SimpleNamespace(params=self.server.runs[run_id].params))

    def update_run(self, run_id: str, status: str | None = None) -> None:
        self.server.runs[run_id].status = status

    def set_terminated(self, run_id: str, status: str | None = None) -> None:
        if "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT" not in os.environ:
            print(f"View run {run_id} at: {self.server.uris[-1]}")
        self.server.runs[run_id].status = status

    def get_metric_history(self, run_id: str, key: str) -> list[Metric]:
        return [metric for metric in self.server.runs[run_id].metrics if metric.key == key]

    def log_batch(self, run_id: str, metrics: Sequence[Metric] = (), params: Sequence[Param] = ()) -> None:
        self.server.fail()
        self.server.retries.append(os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES"))
        run = self.server.runs[run_id]
        assert len(params) <= 100
        for param in params:
            assert run.params.setdefault(param.key, param.value) == param.value, "parameters cannot be changed"
        run.metrics.extend(metrics)


def install_mlflow(monkeypatch: pytest.MonkeyPatch) -> MlflowServer:
    server = MlflowServer()
    client = type("Client", (MlflowClient,), {"server": server})
    install(monkeypatch, "mlflow", MlflowClient=client, __path__=[])
    install(monkeypatch, "mlflow.exceptions", MlflowException=MlflowException)
    install(monkeypatch, "mlflow.entities", Metric=Metric, Param=Param)
    for name in ("TRACKING_URI", "EXPERIMENT_NAME", "HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.delenv(f"MLFLOW_{name}", raising=False)
    return server
