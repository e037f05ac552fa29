"""From a configuration to a run: what it says, what it leaves behind, and that it can be repeated."""

from __future__ import annotations

import csv
import logging
import re
import time

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_runs import assert_same_run, command_words, fail_after, files_of, read_records, tiny_config

from svtoolkit.cli import main
from svtoolkit.config import MarginScheduleConfig
from svtoolkit.errors import UserError
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.system import progress
from svtoolkit.training import experiment as experiment_module
from svtoolkit.training.experiment import Experiment, train


def test_the_log_says_what_is_trained(finished, speech):
    text = (finished / "logs" / "train.log").read_text(encoding="utf-8")
    assert "6 speakers x 3 speeds = 18 classes, 2 more held out for validation" in text
    assert "36 utterances" in text
    assert "effective batch 8 = 8 x 1 accumulated; 2 epochs x 13 steps = 26; peak learning rate 0.05" in text
    assert re.search(r"resnet10: 0\.\d\d M parameters, embedding of 16; memory strategy: store", text)
    assert "cpu, fp32, 1 CPU threads" in text
    assert re.search(r"epoch 2/2: loss \d.*validation EER \d.* %.*waiting for data.*peak memory \d", text)


def test_the_log_says_how_the_batch_is_accumulated(speech, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        Experiment(tiny_config(speech, tmp_path, trainer__micro_batch=2))
    assert "effective batch 8 = 2 x 4 accumulated" in caplog.text


def test_tensorboard_holds_the_curves(finished):
    events = EventAccumulator(str(finished / "logs" / "tensorboard"))
    events.Reload()
    for kind, tag in (("step", "loss"), ("step", "lr"), ("step", "margin"), ("epoch", "validation_eer")):
        records = [record for record in read_records(finished) if record["kind"] == kind]
        curve = events.Scalars(f"{kind}/{tag}")
        assert [event.step for event in curve] == [record["step"] for record in records]
        assert [event.value for event in curve] == pytest.approx([record[tag] for record in records], rel=1e-5)


def test_loggers_hold_no_step_twice_after_a_stop(speech, tmp_path, finished, monkeypatch, capsys):
    """And none is missing of one that is chosen when the run is resumed."""
    config = tiny_config(speech, tmp_path)
    fail_after(monkeypatch, 8)
    with pytest.raises(RuntimeError, match="the power is gone"):
        train(config)
    monkeypatch.undo()
    time.sleep(1.1)  # TensorBoard's files bear the second that they were begun in
    config.trainer.loggers = ["tensorboard", "csv"]
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    assert train(config) is None
    first = capsys.readouterr().err.splitlines()[0]
    number = r"[\d.e+-]+"
    assert re.fullmatch(
        rf"train: 7/26 step \(27 %\), loss {number}, epoch 1/2, lr {number}, acc {number}% \(no margin {number}%\), "
        rf"margin {number}, wait \d+%, {number} utt/s, ETA (\d+:\d\d|\?)",
        first,
    )
    assert_same_run(tmp_path, finished)
    for kind, table in (("step", "steps.csv"), ("epoch", "epochs.csv")):
        records = [record for record in read_records(tmp_path) if record["kind"] == kind]
        with (tmp_path / "logs" / table).open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        found = [(int(row["step"]), float(row["loss"])) for row in rows]
        assert found == [(record["step"], record["loss"]) for record in records]
    curves = []
    for exp_dir in (tmp_path, finished):
        events = EventAccumulator(str(exp_dir / "logs" / "tensorboard"))
        events.Reload()
        curves.append([(event.step, event.value) for event in events.Scalars("step/loss")])
    assert curves[0] == curves[1]


def test_a_finished_run_is_left_as_it_is(speech, finished, monkeypatch, caplog):
    before = files_of(finished)
    monkeypatch.setattr(experiment_module.OptimizerStep, "__call__", lambda *_: pytest.fail("it trains"))
    monkeypatch.setattr(EmbeddingExtractor, "extract", lambda *_: pytest.fail("it validates"))
    with caplog.at_level(logging.INFO):
        assert main(["train", *command_words(tiny_config(speech, finished))]) == 0
    assert "finished already after step 26: there is nothing left to do" in caplog.text
    after = files_of(finished)
    assert after.pop("logs/train.log").startswith(before.pop("logs/train.log"))
    after.pop("logs/commands.txt")  # that it was asked for again
    assert after == before


def test_another_seed_gives_another_run(speech, tmp_path, finished):
    train(tiny_config(speech, tmp_path / "other", seed=8, trainer__epochs=1, trainer__checkpoint_steps=0))
    losses = [read_records(run)[0]["loss"] for run in (tmp_path / "other", finished)]
    assert losses[0] != losses[1]


def test_nothing_of_a_run_is_left_in_the_process(speech, tmp_path):
    handlers = list(logging.getLogger().handlers)
    train(tiny_config(speech, tmp_path, trainer__epochs=1, data__speeds=[1.0], validation__speakers=0))
    assert logging.getLogger().handlers == handlers
    with pytest.raises(UserError):
        train(tiny_config("/nowhere", tmp_path / "other"))
    assert logging.getLogger().handlers == handlers


def test_a_network_learns_its_speakers(speech, tmp_path):
    """Eight voices of different pitch: most crops are recognised in the end."""
    changes = {"validation__speakers": 0, "data__speeds": [1.0], "trainer__epochs": 8, "trainer__checkpoint_steps": 0}
    config = tiny_config(speech, tmp_path, "adamw", **changes, optim__lr=0.01)
    config.schedule.warmup, config.schedule.start_factor, config.schedule.end_factor = 0.5 / 8, 0.2, 0.2
    config.loss.margin = 0.0
    config.margin_schedule = MarginScheduleConfig(name="constant", start=0.0, end=0.0)
    assert train(config) is None
    accuracy = [record["accuracy"] for record in read_records(tmp_path) if record["kind"] == "epoch"]
    assert accuracy[0] < 0.6 < accuracy[-1]
