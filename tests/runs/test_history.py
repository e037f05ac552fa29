"""Writing the history: across stops and on a full disk."""

from __future__ import annotations

import errno
import json
import logging
import os

import pytest

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
    write_steps(tmp_path, (1, 2), loss=3.0)
    assert read_history(tmp_path / "history.jsonl") == [step_record(1, 3.0), step_record(2, 3.0)]


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
