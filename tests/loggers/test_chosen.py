"""Which loggers are told of a run, what is refused before it begins, and that none of them ends it."""

from __future__ import annotations

import logging

import pytest
from logger_material import install_wandb, step_record
from tiny_runs import tiny_config

from svtoolkit import composition
from svtoolkit.config import TrainerConfig
from svtoolkit.errors import UserError
from svtoolkit.loggers import chosen
from svtoolkit.loggers.all_loggers import Loggers
from svtoolkit.loggers.chosen import check_loggers, open_loggers
from svtoolkit.loggers.registry import LOGGERS
from svtoolkit.loggers.run_logger import FAILED, FINISHED, RunLogger
from svtoolkit.registry import Row
from svtoolkit.runs.history import History
from svtoolkit.training.run_record import open_record


class Listening(RunLogger):
    """Keeps what it is told; raises in the methods of ``fails``."""

    opened: list[Listening] = []  # noqa: RUF012

    def __init__(self, run, **settings):
        self.run, self.settings, self.told = run, settings, []
        self.fails: dict[str, Exception] = {}
        if error := settings.get("error"):
            raise OSError(error)
        Listening.opened.append(self)

    def log(self, record):
        self.told.append(record)
        if "log" in self.fails:
            raise self.fails["log"]

    def flush(self):
        if "flush" in self.fails:
            raise self.fails["flush"]

    def close(self, outcome):
        self.told.append(outcome)


@pytest.fixture
def listening(monkeypatch):
    Listening.opened.clear()
    for name in ("ear", "other"):
        monkeypatch.setitem(LOGGERS.rows, name, Row(f"{__name__}:Listening"))
    return Listening.opened


def test_the_keys_compose():
    words = [
        "trainer.loggers=[csv,wandb]",
        "trainer.logger_settings={wandb:{project:voices}}",
        "exp_dir=x",
        "data.train=y",
    ]
    trainer = composition.load("train", words).trainer
    assert (trainer.loggers, trainer.logger_settings) == (["csv", "wandb"], {"wandb": {"project": "voices"}})


@pytest.mark.parametrize(
    ("loggers", "settings", "message"),
    [
        (["tensorbord"], {}, "there is no logger 'tensorbord'; did you mean 'tensorboard'?"),
        (["csv", "csv"], {}, "trainer.loggers names csv twice"),
        (["csv"], {"csv": {"path": "x"}}, "logger csv has no settings, found path"),
        (["wandb"], {"wandb": {"projct": "x"}}, "logger wandb has no option 'projct'; did you mean 'project'?"),
        (["wandb"], {"wandb": {"mode": 3}}, "mode is 3, expected text or null"),
        (["wandb"], {"wandb": "voices"}, "found 'voices' of wandb, expected keys and values"),
        (["csv"], {"wandb": {"project": "x"}}, "which trainer.loggers does not choose.*trainer.loggers=.csv, wandb."),
    ],
)
def test_mistakes_are_named(loggers, settings, message, monkeypatch):
    install_wandb(monkeypatch)
    with pytest.raises(UserError, match=message):
        check_loggers(TrainerConfig(loggers=loggers, logger_settings=settings))


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named_with_its_remedy(name, monkeypatch, tmp_path):
    monkeypatch.setattr(chosen.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(
        UserError, match=rf"{name} needs the package {name}, .*; `pip install {name}`, or leave {name} out"
    ):
        check_loggers(TrainerConfig(loggers=[name]))


def test_a_folder_that_runs_were_written_to_is_no_package(monkeypatch, tmp_path):
    (tmp_path / "mlflow").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    if chosen.importlib.util.find_spec("mlflow").origin is None:
        with pytest.raises(UserError, match="needs the package mlflow"):
            check_loggers(TrainerConfig(loggers=["mlflow"]))


def test_what_a_logger_is_told_of_the_run(tmp_path, listening):
    config = tiny_config(tmp_path, tmp_path / "r34", trainer__loggers=["ear"], data__root="https://me:secret@host/")
    config.augment.added = {"x": {"urls": ["s3://me:secret@host", "https://host/a?X-Amz-Signature=secret"]}}
    history = open_record(config, resume_step=0)
    history.add(step_record(1))
    history.close(FINISHED)
    (ear,) = listening
    assert ear.told == [step_record(1), FINISHED]
    assert (ear.run.name, ear.run.folder, ear.run.resume_step) == ("r34", tmp_path / "r34" / "logs", 0)
    assert ear.run.config["data"]["root"] == "https://***@host/"
    assert "secret" not in str(ear.run.config)
    assert ear.run.config["optim"]["lr"] == 0.05


def test_a_resumed_run_tells_its_past(tmp_path, listening):
    config = tiny_config(tmp_path, tmp_path / "r34", trainer__loggers=["ear"])
    history = open_record(config, resume_step=0)
    for step in (1, 2, 3):
        history.add(step_record(step))
    history.close(FAILED)
    open_record(config, resume_step=2).close()
    assert listening[1].run.records == [step_record(1), step_record(2)]
    assert listening[1].run.resume_step == 2


@pytest.mark.parametrize("call", ["log", "flush"])
def test_a_logger_that_fails_is_told_no_more(tmp_path, call, caplog):
    broken, whole = Listening(None), Listening(None)
    broken.fails[call] = OSError("no space\nleft")
    history = History(tmp_path, resume_step=0)
    history.loggers = Loggers({"ear": broken, "other": whole})
    for step in (1, 2, 3):
        history.add(step_record(step))
        history.sync()
    history.close(FINISHED)
    assert broken.told == [step_record(1)]
    assert whole.told == [*map(step_record, (1, 2, 3)), FINISHED]
    assert caplog.text.count("logger ear has failed (no space left): it gets no more figures of this run") == 1
    assert len(history.records) == 3


def test_a_logger_that_cannot_begin(tmp_path, listening, caplog):
    """Is an error of a new run, and no reason not to resume one."""
    config = tiny_config(tmp_path, tmp_path / "r34", trainer__loggers=["other", "ear"])
    LOGGERS.rows["ear"] = Row(f"{__name__}:Listening", arguments={"error": "no key"})
    with pytest.raises(UserError, match=r"logger ear cannot begin \(no key\); put that right, or leave ear out"):
        open_loggers(config, tmp_path, resume_step=0, records=[])
    assert listening[0].told == [FAILED]
    with caplog.at_level(logging.WARNING):
        open_loggers(config, tmp_path, resume_step=3, records=[]).log(step_record(4))
    assert "logger ear cannot be resumed (no key)" in caplog.text
    assert listening[1].told == [step_record(4)]
