"""Writing the history: across stops, on a full disk, and into TensorBoard."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from svtoolkit.errors import UserError
from svtoolkit.runs import history as history_module
from svtoolkit.runs.history import History
from svtoolkit.runs.run_history import read_history


def step_record(step, loss=1.0):
    return {"kind": "step", "step": step, "epoch": 1, "loss": loss, "lr": 0.1}


def write_steps(folder, steps, *, resume_step=0, loss=1.0):
    history = History(folder, resume_step=resume_step)
    for step in steps:
        history.add(step_record(step, loss))
    history.close()
    return history


def curve(folder, tag="step/loss"):
    """Steps and values of a TensorBoard curve, rounded as float32 makes necessary."""
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, round(event.value, 5)) for event in events.Scalars(tag)]


class FullDisk:
    """A stream on a disk that fills up in the middle of a line, and may be freed again."""

    def __init__(self, stream):
        self.stream, self.full = stream, False

    def write(self, text):
        if self.full:
            self.stream.write(text[:10])
            self.stream.flush()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.stream.write(text)

    def __getattr__(self, name):
        return getattr(self.stream, name)


def test_records_are_on_disk_as_soon_as_they_are_added(tmp_path):
    history = History(tmp_path, resume_step=0)
    records = [step_record(1), {"kind": "epoch", "step": 1, "epoch": 1, "validation_eer": 0.25}]
    for number, record in enumerate(records, start=1):
        history.add(record)
        assert read_history(tmp_path / "history.jsonl") == records[:number]
    assert history.epochs() == records[1:]
    history.close()


def test_a_resumed_run_drops_what_it_will_do_again(tmp_path):
    write_steps(tmp_path, range(1, 8))
    history = write_steps(tmp_path, (5, 6), resume_step=4, loss=2.0)
    expected = [step_record(step) for step in (1, 2, 3, 4)] + [step_record(step, 2.0) for step in (5, 6)]
    assert read_history(tmp_path / "history.jsonl") == history.records == expected


def test_a_run_from_the_beginning_forgets_an_older_one(tmp_path):
    write_steps(tmp_path, range(1, 8))
    time.sleep(1.1)  # TensorBoard reads its files in the order of the seconds that they were begun in
    write_steps(tmp_path, (1, 2), loss=3.0)
    assert read_history(tmp_path / "history.jsonl") == [step_record(1, 3.0), step_record(2, 3.0)]
    assert curve(tmp_path) == [(1, 3.0), (2, 3.0)]


def test_records_without_a_step_stay(tmp_path):
    (tmp_path / "history.jsonl").write_text('{"kind": "note", "text": "by hand"}\n')
    assert write_steps(tmp_path, [4], resume_step=3).records == [{"kind": "note", "text": "by hand"}, step_record(4)]


@pytest.mark.parametrize("torn", [b'{"kind": "step", "step"', b'{"kind": "step", "note": "\xc3'])
def test_a_torn_last_line_is_gone_after_resuming(tmp_path, torn):
    write_steps(tmp_path, (1, 2))
    with (tmp_path / "history.jsonl").open("ab") as stream:
        stream.write(torn)
    write_steps(tmp_path, [3], resume_step=2)
    assert read_history(tmp_path / "history.jsonl") == [step_record(step) for step in (1, 2, 3)]


def test_a_malformed_line_in_the_middle_is_named_and_left_as_it_is(tmp_path):
    content = json.dumps(step_record(1)) + "\n{oops\n" + json.dumps(step_record(2)) + "\n"
    (tmp_path / "history.jsonl").write_text(content)
    with pytest.raises(UserError, match=r"history\.jsonl:2: found '\{oops', expected a JSON object"):
        History(tmp_path, resume_step=2)
    assert (tmp_path / "history.jsonl").read_text() == content


def test_a_lost_history_is_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        History(tmp_path, resume_step=40).close()
    assert "history.jsonl: the records up to step 40 are missing" in caplog.text


def test_a_full_disk_loses_no_record(tmp_path, caplog):
    history = History(tmp_path, resume_step=0)
    history.add(step_record(1))
    disk = history._stream = FullDisk(history._stream)
    disk.full = True
    history.add(step_record(2))
    history.add(step_record(3))
    assert caplog.text.count("history.jsonl could not be written") == 1
    assert read_history(tmp_path / "history.jsonl") == [step_record(1)], "the second line is torn"
    disk.full = False
    history.sync()
    history.add(step_record(4))
    history.close()
    assert read_history(tmp_path / "history.jsonl") == [step_record(step) for step in (1, 2, 3, 4)]
    assert curve(tmp_path) == [(step, 1.0) for step in (1, 2, 3, 4)]


def test_a_disk_that_stays_full_is_an_error_when_it_matters(tmp_path, monkeypatch):
    history = History(tmp_path, resume_step=0)
    disk = history._stream = FullDisk(history._stream)
    disk.full = True
    history.add(step_record(1))

    def refuse(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(history_module, "atomic_write", refuse)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left on device"):
            history.sync()
    history.add(step_record(2))
    history.close()


def test_tensorboard_holds_every_step_once_after_kills(tmp_path):
    """A killed run closes nothing: what it wrote after the last state is done again."""
    first = History(tmp_path, resume_step=0)
    for step in range(1, 8):
        first.add(step_record(step))
        if step == 4:
            first.sync()
    first._tensorboard.flush()  # the writer's own timer may come at any moment
    killed = next(Path(tmp_path / "tensorboard").iterdir())
    killed.write_bytes(killed.read_bytes()[:-7])  # in the middle of an event
    write_steps(tmp_path, range(5, 10), resume_step=4, loss=2.0)
    assert curve(tmp_path) == [(step, 1.0 if step < 5 else 2.0) for step in range(1, 10)]
    first.close()


def test_what_a_state_is_ahead_of_is_in_tensorboard(tmp_path):
    history = History(tmp_path, resume_step=0)
    for step in range(1, 4):
        history.add(step_record(step))
    history.sync()
    assert curve(tmp_path) == [(step, 1.0) for step in (1, 2, 3)]
    history.close()


def test_tensorboard_gets_numbers_under_their_kind(tmp_path):
    history = History(tmp_path, resume_step=0)
    history.add({"kind": "step", "step": 2, "epoch": 1, "loss": 0.5, "broken": math.nan, "note": "text", "none": None})
    history.add({"kind": "epoch", "step": 2, "epoch": 1, "validation_eer": 0.125, "peak_memory_bytes": 1024})
    history.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["epoch/peak_memory_bytes", "epoch/validation_eer", "step/loss"]
    assert curve(tmp_path, "epoch/validation_eer") == [(2, 0.125)]


def test_a_tensorboard_that_cannot_be_written_ends_its_curves_alone(tmp_path, caplog):
    history = History(tmp_path, resume_step=0)

    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    history._tensorboard.add_scalar = refuse
    history.add(step_record(1))
    history.add(step_record(2))
    history.sync()
    history.close()
    assert caplog.text.count("TensorBoard's files cannot be written") == 1
    assert read_history(tmp_path / "history.jsonl") == [step_record(1), step_record(2)]
