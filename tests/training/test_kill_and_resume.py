"""A run that is killed, at any moment and several times, ends bit for bit as one that never was."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from forked_svt import MOMENTS, NO_SIGNAL, Signal, start_svt_train, svt_train
from tiny_runs import assert_same_run, read_records, tiny_config

from svtoolkit.runs.full_state import list_states
from svtoolkit.training.experiment import train

CASES = {
    "adamw, accumulated": ({"optim": "adamw", "trainer__micro_batch": 4}, {"data__num_workers": 1}),
    "sgd, 8 bits": ({"optim": "sgd_8bit"}, {}),
    "adamw, 8 bits": ({"optim": "adamw_8bit", "trainer__micro_batch": 2}, {}),
}
"""What an epoch of 13 steps is run with, and what the uninterrupted run does otherwise."""


@pytest.mark.parametrize("case", CASES)
def test_killed_at_a_random_step(case, speech, tmp_path):
    changes, otherwise = CASES[case]
    whole = tiny_config(speech, tmp_path / "whole", trainer__epochs=1, **{**changes, **otherwise})
    assert train(whole) is None
    config = tiny_config(speech, tmp_path / "exp", trainer__epochs=1, **changes)
    step = random.Random(case).randrange(4, 13)
    assert svt_train(config, tmp_path / "output", Signal(signal.SIGKILL, step)) == -signal.SIGKILL
    assert last_step(tmp_path / "exp") == step
    assert svt_train(config, tmp_path / "output") == 0, (tmp_path / "output").read_text()
    assert f"resuming after step {(step - 1) // 3 * 3} of 13" in (tmp_path / "output").read_text()
    assert_same_run(tmp_path / "exp", tmp_path / "whole")
    assert not list((tmp_path / "exp").rglob("*.damaged"))


def test_killed_at_the_worst_moments(speech, tmp_path, finished):
    config = tiny_config(speech, tmp_path / "exp")
    steps = dict(zip(MOMENTS, (2, 4, 8, 10, 12, 13), strict=True))  # in rising order: every run gets that far
    for moment, step in steps.items():
        assert svt_train(config, tmp_path / "output", Signal(signal.SIGKILL, step, moment)) == -signal.SIGKILL, moment
    assert "left out an unfinished last record" in (tmp_path / "output").read_text()
    assert svt_train(config, tmp_path / "output") == 0, (tmp_path / "output").read_text()
    assert_same_run(tmp_path / "exp", finished)
    assert not list((tmp_path / "exp").rglob("*.damaged"))
    states = [path.name for path in list_states(tmp_path / "exp" / "checkpoints")]
    assert states == ["state-0000000024.pt", "state-0000000026.pt"]
    records = read_records(tmp_path / "exp")
    assert [record["step"] for record in records if record["kind"] == "step"] == list(range(1, 27))
    assert [(record["step"], record["epoch"]) for record in records if record["kind"] == "epoch"] == [(13, 1), (26, 2)]


def test_signals_to_the_process_group(speech, tmp_path, finished):
    """What a batch system sends, and then Ctrl-C; two loader workers get them as well."""
    config = tiny_config(speech, tmp_path / "exp", data__num_workers=2)
    for number, step in ((signal.SIGTERM, 5), (signal.SIGINT, 8)):
        output = tmp_path / f"output {step}"
        assert svt_train(config, output, Signal(number, step)) == 128 + number
        assert list_states(tmp_path / "exp" / "checkpoints")[-1].name == f"state-{step:010d}.pt"
        said = f"stopped by signal {int(number)}, state saved; the same command resumes from here"
        assert said in output.read_text()
        assert "Traceback" not in output.read_text()
    assert svt_train(config, tmp_path / "output") == 0
    assert "resuming after step 8 of 26" in (tmp_path / "output").read_text()
    assert_same_run(tmp_path / "exp", finished)


def test_an_unforeseen_error_ends_the_process_with_its_loader_workers(speech, tmp_path):
    """Python waits at exit for children that are still there: a worker that will not end would hang the run."""
    config = tiny_config(speech, tmp_path / "exp", data__num_workers=2)
    assert svt_train(config, tmp_path / "output", Signal(NO_SIGNAL, step=2)) == 1
    assert "RuntimeError: nobody foresaw this" in (tmp_path / "output").read_text()


def test_a_damaged_newest_state_falls_back_to_the_one_before(speech, tmp_path, finished, caplog):
    exp_dir = shutil.copytree(finished, tmp_path / "exp")
    newest = list_states(exp_dir / "checkpoints")[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    caplog.set_level("INFO")
    assert train(tiny_config(speech, exp_dir)) is None
    assert f"{newest} cannot be read" in caplog.text
    assert f"{newest} cannot be read" in (exp_dir / "logs" / "train.log").read_text()
    assert "resuming after step 24 of 26" in caplog.text
    assert newest.with_name(f"{newest.name}.damaged").is_file()
    assert_same_run(exp_dir, finished)


def test_killed_from_outside_as_a_user_would_see_it(speech, tmp_path, finished):
    """By a SIGKILL that comes whenever it comes; two loader workers are orphaned."""
    config = tiny_config(speech, tmp_path / "exp", data__num_workers=2)
    process = start_svt_train(config, tmp_path / "output")
    deadline = time.monotonic() + 60
    while last_step(tmp_path / "exp") < 7:
        assert not process.wait(0), "the run ended before step 7"
        assert time.monotonic() < deadline, "the run did not come to step 7"
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert svt_train(config, tmp_path / "output") == 0, (tmp_path / "output").read_text()
    assert_same_run(tmp_path / "exp", finished)
    wait_until_gone(process.pid)


def last_step(exp_dir: Path) -> int:
    """Of the history as it stands, torn or not; 0 where there is none."""
    path = exp_dir / "logs" / "history.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.is_file() else []
    return max((json.loads(line)["step"] for line in whole), default=0)


def wait_until_gone(group: int) -> None:
    """Loader workers look after their parent every 5 s."""
    deadline = time.monotonic() + 30
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.1)
        pytest.fail(f"processes of group {group} are left")
