"""MLflow, by a stand-in of its package."""

from __future__ import annotations

import threading

import pytest
from logger_material import MlflowException, epoch_record, install_mlflow, logged_run, step_record

from svtoolkit.config import MLflowConfig
from svtoolkit.loggers import mlflow as module
from svtoolkit.loggers.mlflow import MLflowLogger
from svtoolkit.loggers.run_logger import FAILED, FINISHED, STOPPED
from svtoolkit.system.output import log_to_stdout


@pytest.fixture
def server(monkeypatch):
    return install_mlflow(monkeypatch)


def begin(run, **settings):
    return MLflowLogger(run, **{**vars(MLflowConfig()), **settings})


def test_a_run_in_the_folder_of_the_logs(tmp_path, server):
    logger = begin(logged_run(tmp_path))
    for record in (step_record(10), epoch_record(13, validation_eer=0.25)):
        logger.log(record)
    logger.close(FINISHED)
    ((run_id, run),) = server.runs.items()
    assert (tmp_path / "mlflow_run_id").read_text() == f"{run_id}\n"
    assert server.uris == [f"sqlite:///{tmp_path}/mlflow.db"]
    assert server.artifacts == {"svtoolkit": (tmp_path / "mlflow_artifacts").as_uri()}
    assert (run.name, run.status) == ("r34", "FINISHED")
    assert run.params == {
        "seed": "7", "optim.name": "sgd", "optim.lr": "0.1", "data.root": "https://***@host/",
        "data.speeds": "[1.0, 0.9]",
    }  # fmt: skip
    assert [(metric.key, metric.value, metric.step) for metric in run.metrics] == [
        ("step/loss", 1.0, 10), ("step/lr", 0.1, 10), ("epoch/loss", 0.5, 13), ("epoch/validation_eer", 0.25, 13)
    ]  # fmt: skip


def test_a_password_is_not_printed(tmp_path, server, capsys):
    with log_to_stdout():
        begin(logged_run(tmp_path), tracking_uri="http://me:secret@there").close(FINISHED)
    assert capsys.readouterr().out == "MLflow: run run0 of http://***@there\n"


def test_a_server_of_the_environment_or_of_the_settings(tmp_path, server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://here")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "voices")
    begin(logged_run(tmp_path)).close(FINISHED)
    begin(logged_run(tmp_path), tracking_uri="http://there", experiment="others").close(FINISHED)
    assert server.uris == ["http://here", "http://there"]
    assert server.artifacts == {"voices": None, "others": None}


def test_a_resumed_run_has_its_id_and_every_step_once(tmp_path, server):
    """The server has steps 1 to 3 and 5 to 8 is made again: what was lost on its way comes, nothing comes twice."""
    first = begin(logged_run(tmp_path))
    for step in (1, 2, 3):
        first.log(step_record(step))
    first.close(STOPPED)
    ((run_id, run),) = server.runs.items()
    assert run.status == "KILLED"
    second = begin(logged_run(tmp_path, [step_record(step) for step in (1, 2)]))
    assert run.status == "RUNNING"
    for step in (3, 4, 5):
        second.log(step_record(step))
    second.close(FAILED)
    third = begin(logged_run(tmp_path, [step_record(step) for step in range(1, 8)]))
    third.close(FINISHED)
    assert list(server.runs) == [run_id]
    assert server.steps(run_id, "step/loss") == server.steps(run_id, "step/lr") == [1, 2, 3, 4, 5, 6, 7]


def test_a_run_that_the_server_has_lost(tmp_path, server, caplog):
    begin(logged_run(tmp_path)).close(STOPPED)
    server.runs.clear()
    server.runs["other"] = None
    begin(logged_run(tmp_path, [step_record(1), step_record(2)])).close(FINISHED)
    assert "MLflow does not know the run run0 any more" in caplog.text
    assert server.steps("run1", "step/loss") == [1, 2]


def test_a_server_that_is_away_keeps_the_id(tmp_path, server):
    """What is not there any more and what does not answer are two things."""
    begin(logged_run(tmp_path)).close(STOPPED)

    def refuse():
        raise MlflowException("no route to host")

    server.fail = refuse
    with pytest.raises(MlflowException, match="no route to host"):
        begin(logged_run(tmp_path, [step_record(1)]))
    server.fail = lambda: None
    begin(logged_run(tmp_path, [step_record(1)])).close(FINISHED)
    assert list(server.runs) == ["run0"]


def test_a_run_waits_for_a_server_for_seconds_before_it_begins(tmp_path, server, monkeypatch):
    logger = begin(logged_run(tmp_path))
    logger.log(step_record(1))
    logger.close(FINISHED)
    assert server.retries == ["2", None]
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "5")
    begin(logged_run(tmp_path)).close(FINISHED)
    assert server.retries[2:] == ["5"]


def test_a_server_that_stops_answering_is_not_waited_for(tmp_path, server, monkeypatch):
    monkeypatch.setattr(module, "LAST_SECONDS", 0.05)
    logger = begin(logged_run(tmp_path))
    answers = threading.Event()
    server.fail = lambda: answers.wait(30)
    logger.log(step_record(1))
    with pytest.raises(TimeoutError, match=r"2 calls were not answered within 0\.05 s"):
        logger.close(FINISHED)
    answers.set()


def test_what_the_server_refused_is_raised_by_a_later_call(tmp_path, server):
    logger = begin(logged_run(tmp_path))

    def refuse():
        raise OSError("no route to host")

    server.fail = refuse
    logger.log(step_record(1))
    with pytest.raises(OSError, match="no route to host"):
        logger.close(FINISHED)
    with pytest.raises(OSError, match="no route to host"):
        logger.log(step_record(2))
