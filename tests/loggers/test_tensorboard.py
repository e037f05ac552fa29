"""TensorBoard's curves: every step once, whatever stopped the run."""

from __future__ import annotations

import math

import pytest
from logger_material import logged_run, step_record
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from svtoolkit.loggers.run_logger import FINISHED
from svtoolkit.loggers.tensorboard import TensorBoardLogger


def events(folder):
    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return found


def curve(folder, tag="step/loss"):
    """Steps and values, rounded as float32 makes necessary."""
    return [(event.step, round(event.value, 5)) for event in events(folder).Scalars(tag)]


@pytest.fixture
def clock(monkeypatch):
    """clock(): two seconds go by for TensorBoard, which reads its files in the order of their seconds."""
    import time

    from tensorboard.summary.writer import event_file_writer

    real, ahead = time.time, [0]
    monkeypatch.setattr(event_file_writer.time, "time", lambda: real() + ahead[0])
    return lambda: ahead.append(ahead.pop() + 2)


def write(run, steps, loss=1.0):
    logger = TensorBoardLogger(run)
    for step in steps:
        logger.log(step_record(step, loss))
    return logger


def test_every_step_once_after_kills(tmp_path, clock):
    """A killed run closes nothing: what it wrote after the last state is done again."""
    first = write(logged_run(tmp_path), range(1, 8))
    first.flush()
    killed = next((tmp_path / "tensorboard").iterdir())
    killed.write_bytes(killed.read_bytes()[:-7])  # in the middle of an event
    clock()
    write(logged_run(tmp_path, [step_record(step) for step in range(1, 5)]), range(5, 10), loss=2.0).close(FINISHED)
    assert curve(tmp_path) == [(step, 1.0 if step < 5 else 2.0) for step in range(1, 10)]
    first.close(FINISHED)


def test_a_run_from_the_beginning_forgets_an_older_one(tmp_path, clock):
    write(logged_run(tmp_path), range(1, 8)).close(FINISHED)
    clock()
    write(logged_run(tmp_path), (1, 2), loss=3.0).close(FINISHED)
    assert curve(tmp_path) == [(1, 3.0), (2, 3.0)]


def test_a_run_that_went_without_gets_all_its_curve(tmp_path):
    write(logged_run(tmp_path, [step_record(1), step_record(2)]), [3]).close(FINISHED)
    assert curve(tmp_path) == [(1, 1.0), (2, 1.0), (3, 1.0)]


def test_flushed_is_on_disk(tmp_path):
    logger = write(logged_run(tmp_path), (1, 2, 3))
    logger.flush()
    assert curve(tmp_path) == [(1, 1.0), (2, 1.0), (3, 1.0)]
    logger.close(FINISHED)


def test_numbers_come_under_their_kind_and_the_configuration_as_a_text(tmp_path):
    logger = write(logged_run(tmp_path), ())
    logger.log({"kind": "step", "step": 2, "epoch": 1, "loss": 0.5, "broken": math.nan, "note": "text", "none": None})
    logger.log({"kind": "epoch", "step": 2, "epoch": 1, "validation_eer": 0.125, "peak_memory_bytes": 1024})
    logger.close(FINISHED)
    found = events(tmp_path)
    assert sorted(found.Tags()["scalars"]) == ["epoch/peak_memory_bytes", "epoch/validation_eer", "step/loss"]
    assert curve(tmp_path, "epoch/validation_eer") == [(2, 0.125)]
    (text,) = found.Tensors("config/text_summary")
    assert b"| optim.lr | `0.1` |" in text.tensor_proto.string_val[0]
