"""A run that is killed, at any moment and several times, ends bit for bit as one that never was."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked_svt import MOMENTS, NO_SIGNAL, Signal, svt_train
from tiny_runs import assert_same_run, command_words, read_records, tiny_config

from svtoolkit.runs.full_state import list_states

STEPS = 26
"""Of the tiny run: two epochs of 13."""

CASES = {
    "sgd, no workers": ({"data__num_workers": 0}, {"data__num_workers": 2}),
    "sgd, two workers, accumulated": ({"data__num_workers": 2, "trainer__micro_batch": 2}, {"data__num_workers": 0}),
    "adamw, accumulated": ({"optim": "adamw", "trainer__micro_batch": 4}, {"data__num_workers": 1}),
    "sgd, 8 bits": ({"optim": "sgd_8bit"}, {}),
    "adamw, 8 bits": ({"optim": "adamw_8bit"}, {}),
}
"""What is run, and what the uninterrupted run does otherwise."""


@pytest.fixture(scope="module")
def reference(speech, tmp_path_factory):
    """exp_dir of an uninterrupted run of a case; made once."""
    done: dict[str, Path] = {}

    def run(case: str) -> Path:
        if case not in done:
            changes, otherwise = CASES[case]
            folder = tmp_path_factory.mktemp("reference")
            config = tiny_config(speech, folder / "exp", **{**changes, **otherwise})
            assert svt_train(config, folder / "output") == 0, (folder / "output").read_text()
            done[case] = folder / "exp"
        return done[case]

    return run


@pytest.mark.parametrize("case", CASES)
def test_killed_at_random_steps(case, speech, tmp_path, reference):
    config = tiny_config(speech, tmp_path / "exp", **CASES[case][0])
    steps = sorted(random.Random(case).sample(range(1, STEPS), 2))
    for step in steps:
        assert svt_train(config, tmp_path / "output", Signal(signal.SIGKILL, step)) == -signal.SIGKILL
        assert last_step(tmp_path / "exp") == step
    assert svt_train(config, tmp_path / "output") == 0, (tmp_path / "output").read_text()
    assert_same_run(tmp_path / "exp", reference(case))
    assert not list((tmp_path / "exp").rglob("*.damaged"))


def test_killed_at_the_worst_moments(speech, tmp_path, reference):
    case = "sgd, no workers"
    config = tiny_config(speech, tmp_path / "exp", **CASES[case][0])
    steps = dict(zip(MOMENTS, (2, 4, 8, 10, 12, 13), strict=True))  # in rising order: every run gets that far
    for moment, step in steps.items():
        assert svt_train(config, tmp_path / "output", Signal(signal.SIGKILL, step, moment)) == -signal.SIGKILL, moment
    assert "left out an unfinished last record" in (tmp_path / "output").read_text()
    assert svt_train(config, tmp_path / "output") == 0, (tmp_path / "output").read_text()
    assert_same_run(tmp_path / "exp", reference(case))
    states = [path.name for path in list_states(tmp_path / "exp" / "checkpoints")]
    assert states == ["state-0000000024.pt", "state-0000000026.pt"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_signal_to_the_process_group(number, speech, tmp_path, reference):
    case = "sgd, two workers, accumulated"
    config = tiny_config(speech, tmp_path / "exp", **CASES[case][0])
    assert svt_train(config, tmp_path / "output", Signal(number, step=8)) == 128 + number
    assert list_states(tmp_path / "exp" / "checkpoints")[-1].name == "state-0000000008.pt"
    output = (tmp_path / "output").read_text()
    assert f"stopped by signal {number}, state saved; the same command resumes from here" in output
    assert "Traceback" not in output
    assert svt_train(config, tmp_path / "output") == 0
    assert "resuming after step 8 of 26" in (tmp_path / "output").read_text()
    assert_same_run(tmp_path / "exp", reference(case))


def test_an_unforeseen_error_ends_the_process_with_its_loader_workers(speech, tmp_path):
    """Python waits at exit for children that are still there: a worker that will not end would hang the run."""
    config = tiny_config(speech, tmp_path / "exp", data__num_workers=2)
    assert svt_train(config, tmp_path / "output", Signal(NO_SIGNAL, step=8)) == 1
    assert "RuntimeError: nobody foresaw this" in (tmp_path / "output").read_text()


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [truncated, flipped, lambda content: b"", lambda content: content[:-1]])
def test_a_damaged_newest_state_falls_back_to_the_one_before(damage, speech, tmp_path, reference):
    case = "sgd, no workers"
    config = tiny_config(speech, tmp_path / "exp", **CASES[case][0])
    assert svt_train(config, tmp_path / "output", Signal(signal.SIGKILL, 17)) == -signal.SIGKILL
    before, newest = list_states(tmp_path / "exp" / "checkpoints")
    assert (before.name, newest.name) == ("state-0000000013.pt", "state-0000000015.pt")
    newest.write_bytes(damage(newest.read_bytes()))
    assert svt_train(config, tmp_path / "output") == 0, (tmp_path / "output").read_text()
    output = (tmp_path / "output").read_text()
    assert f"{newest} cannot be read" in output
    assert f"{newest} cannot be read" in (tmp_path / "exp" / "logs" / "train.log").read_text()
    assert "resuming after step 13 of 26" in output
    assert newest.with_name(f"{newest.name}.damaged").is_file()
    assert_same_run(tmp_path / "exp", reference(case))


def test_killed_from_outside_as_a_user_would_see_it(speech, tmp_path, reference):
    """The command itself, by a SIGKILL that comes whenever it comes; two loader workers are orphaned."""
    config = tiny_config(speech, tmp_path / "exp", **CASES["sgd, no workers"][0] | {"data__num_workers": 2})
    process = start_command(config, tmp_path / "output")
    wait_for_step(tmp_path / "exp", 7, process)
    process.kill()
    assert process.wait(timeout=30) == -signal.SIGKILL
    assert svt_train(config, tmp_path / "output") == 0, (tmp_path / "output").read_text()
    assert_same_run(tmp_path / "exp", reference("sgd, no workers"))
    wait_until_gone(process.pid)


def start_command(config, output) -> subprocess.Popen[bytes]:
    with output.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "svtoolkit.cli", "train", *command_words(config)],
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )


def wait_for_step(exp_dir: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while last_step(exp_dir) != step:
        assert process.poll() is None, f"the run ended before step {step}"
        assert time.monotonic() < deadline, f"the run did not come to step {step}"
        if last_step(exp_dir) > step:
            return
        time.sleep(0.001)


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


def test_histories_hold_every_step_once(speech, tmp_path):
    config = tiny_config(speech, tmp_path / "exp")
    assert svt_train(config, tmp_path / "output", Signal(signal.SIGKILL, 5)) == -signal.SIGKILL
    assert svt_train(config, tmp_path / "output") == 0
    records = read_records(tmp_path / "exp")
    assert [record["step"] for record in records if record["kind"] == "step"] == list(range(1, STEPS + 1))
    assert [(record["step"], record["epoch"]) for record in records if record["kind"] == "epoch"] == [(13, 1), (26, 2)]
