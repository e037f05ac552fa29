"""Weights & Biases, by a stand-in of its package; offline by the package itself where it is installed."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from logger_material import CONFIG, epoch_record, install_wandb, logged_run, step_record

from svtoolkit.config import WandbConfig
from svtoolkit.loggers.run_logger import FINISHED, STOPPED
from svtoolkit.loggers.wandb import WandbLogger

REAL = importlib.util.find_spec("wandb")


def begin(run, **settings):
    return WandbLogger(run, **{**vars(WandbConfig()), **settings})


def test_a_run_and_what_it_is_called(tmp_path, monkeypatch):
    server = install_wandb(monkeypatch)
    logger = begin(logged_run(tmp_path), project="voices", mode="offline")
    for record in (step_record(10), step_record(13, 0.5), epoch_record(13, validation_eer=0.25, validation_note=None)):
        logger.log(record)
    logger.close(FINISHED)
    ((run_id, run),) = server.runs.items()
    assert (tmp_path / "wandb_run_id").read_text() == f"{run_id}\n"
    assert (run["given"]["project"], run["given"]["name"], run["given"]["dir"]) == ("voices", "r34", str(tmp_path))
    assert run["config"] == CONFIG
    assert run["history"] == {
        10: {"step/loss": 1.0, "step/lr": 0.1, "epoch": 1},
        13: {"step/loss": 0.5, "step/lr": 0.1, "epoch/loss": 0.5, "epoch/validation_eer": 0.25, "epoch": 1},
    }
    assert run["status"] == 0


def test_a_resumed_run_has_its_id_and_every_step_once(tmp_path, monkeypatch):
    """Of steps 1 to 8 the state is that of step 6, and the server got those to 7: 8 was on its way."""
    server = install_wandb(monkeypatch)
    first = begin(logged_run(tmp_path))
    for step in range(1, 8):
        first.log(step_record(step))
    first.close(STOPPED)
    ((run_id, run),) = server.runs.items()
    assert run["status"] == 1
    second = begin(logged_run(tmp_path, [step_record(step) for step in range(1, 7)]))
    for step in range(7, 10):
        second.log(step_record(step, 2.0))
    assert list(server.runs) == [run_id]
    losses = {step: values["step/loss"] for step, values in run["history"].items()}
    assert losses == {**dict.fromkeys(range(1, 8), 1.0), 8: 2.0, 9: 2.0}


def test_a_run_that_begins_anew_is_another(tmp_path, monkeypatch):
    server = install_wandb(monkeypatch)
    for _ in range(2):
        begin(logged_run(tmp_path)).log(step_record(1))
    assert len(server.runs) == 2


def test_a_run_that_went_without_gets_all_its_curve(tmp_path, monkeypatch):
    server = install_wandb(monkeypatch)
    begin(logged_run(tmp_path, [step_record(1), step_record(2)]))
    ((_, run),) = server.runs.items()
    assert list(run["history"]) == [1, 2]


def test_each_offline_part_holds_all_steps(tmp_path, monkeypatch):
    server = install_wandb(monkeypatch)
    begin(logged_run(tmp_path), mode="offline")
    (run,) = server.runs.values()
    begin(logged_run(tmp_path, [step_record(1), step_record(2)]), mode="offline").log(step_record(3))
    assert list(run["history"]) == [1, 2, 3]


def test_the_words_of_the_command_have_no_credentials(tmp_path, monkeypatch):
    server = install_wandb(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["svt", "train", "data.root=https://me:secret@host/"])
    begin(logged_run(tmp_path))
    (run,) = server.runs.values()
    assert run["argv"] == ["svt", "train", "data.root=https://***@host/"]
    assert "secret" in sys.argv[2]


@pytest.mark.skipif(REAL is None or REAL.origin is None, reason="wandb is not installed: pip install wandb")
def test_the_package_itself_offline(tmp_path):
    first = begin(logged_run(tmp_path), mode="offline")
    first.log(step_record(1))
    first.close(STOPPED)
    second = begin(logged_run(tmp_path, [step_record(1)]), mode="offline")
    second.log(step_record(2))
    second.close(FINISHED)
    run_id = (tmp_path / "wandb_run_id").read_text().strip()
    assert {path.name for path in tmp_path.glob("wandb/offline-run-*/*.wandb")} == {f"run-{run_id}.wandb"}
