"""Several processes on the CPU: what they learn, how they stop, and what is said when one fails."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forked import free_port
from made_once import made_once
from tiny_runs import assert_same_run, command_words, read_records, read_run, tiny_config
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from warm_svt import RANKS_WAIT, ranks_of

from svtoolkit.config import TrainConfig
from svtoolkit.distributed import world as world_module
from svtoolkit.distributed.rank import Rank
from svtoolkit.errors import UserError
from svtoolkit.training import experiment, processes
from svtoolkit.training.experiment import train
from svtoolkit.training.launch import launch

pytestmark = [
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
SVT = [sys.executable, "-m", "svtoolkit.cli"]
ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


def start(program: Sequence[str | Path], config: TrainConfig, **environment: str) -> subprocess.Popen[str]:
    words = [*program, "train", *command_words(config)]
    own = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=own)


def finish(process: subprocess.Popen[str], timeout: float = 120) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, output


def wait_for_step(exp_dir: Path, step: int, process: subprocess.Popen[str]) -> None:
    history = exp_dir / "logs" / "history.jsonl"
    end = time.monotonic() + 120
    while f'"step": {step},' not in (history.read_text() if history.exists() else ""):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, f"step {step} did not come"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture(scope="module")
def pair(speech, shared_folder, warm_svt) -> Path:
    """exp_dir of the tiny run on two devices, undisturbed, as torchrun starts it."""

    def make(folder: Path) -> None:
        status, output = finish(start([*TORCHRUN, warm_svt], tiny_config(speech, folder / "exp")))
        assert status == 0, output
        assert output.count("effective batch 8 = 2 devices x 4 x 1 accumulated") == 1, "one process speaks"

    return made_once(shared_folder, "pair", make) / "exp"


def weights_of(exp_dir: Path) -> dict[str, torch.Tensor]:
    state = read_run(exp_dir)["state"]
    named = {**state["network"], **{f"head.{name}": tensor for name, tensor in state["head"].items()}}
    return {name: tensor for name, tensor in named.items() if "running_" not in name}


def test_two_devices_learn_what_one_accumulates(pair, speech, tmp_path):
    """BatchNorm aside: its statistics are those of the first process's crops, which is half as many."""
    assert train(tiny_config(speech, tmp_path / "one", trainer__micro_batch=4)) is None
    ours, theirs = weights_of(pair), weights_of(tmp_path / "one")
    for name, weight in theirs.items():
        if "num_batches_tracked" not in name:
            torch.testing.assert_close(ours[name], weight, rtol=1e-4, atol=1e-6, msg=name)
    losses = [
        [record["loss"] for record in read_records(path) if record["kind"] == "step"]
        for path in (pair, tmp_path / "one")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert len(list((pair / "logs" / "tensorboard").iterdir())) == 1, "one process logs"


def test_stopped_and_killed_and_resumed_it_is_the_run_that_torchrun_starts(pair, speech, tmp_path, warm_svt):
    config = tiny_config(speech, tmp_path / "exp", trainer__devices=2)
    process = start(SVT, config)
    wait_for_step(tmp_path / "exp", 4, process)
    process.send_signal(signal.SIGTERM)
    status, output = finish(process)
    assert status == 128 + signal.SIGTERM, output
    assert "stopped by signal 15, state saved" in output
    assert output.count("effective batch 8 = 2 devices x 4 x 1 accumulated") == 1, "one process speaks"

    process = start([warm_svt], config)
    wait_for_step(tmp_path / "exp", 14, process)
    ranks = ranks_of(process)
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    status, output = finish(process)
    assert status == 1
    assert "process 1 of 2 was killed by signal 9 (often: out of memory)" in output
    assert "Traceback" not in output
    assert all(map(is_gone, ranks))

    status, output = finish(start([warm_svt], config))
    assert status == 0, output
    assert_same_run(tmp_path / "exp", pair)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_before_the_first_step(number, speech, tmp_path, warm_svt):
    """As a run of one process: nothing went wrong, and no memory ran out."""
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip(f"signal {number} is ignored here, and so it is by what is started here")
    config = tiny_config(speech, tmp_path / "exp", trainer__devices=2, trainer__epochs=50)
    process = start([warm_svt], config, **RANKS_WAIT)
    end = time.monotonic() + 60
    while len(ranks := ranks_of(process)) < 2:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(number)
    status, output = finish(process)
    assert (status, output) == {signal.SIGTERM: (-15, ""), signal.SIGINT: (130, "interrupted\n")}[number]
    assert all(map(is_gone, ranks))


def test_processes_end_with_the_one_that_started_them(speech, tmp_path, warm_svt):
    process = start([warm_svt], tiny_config(speech, tmp_path / "exp", trainer__devices=2, trainer__epochs=50))
    wait_for_step(tmp_path / "exp", 2, process)
    ranks = ranks_of(process)
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while not all(map(is_gone, ranks)):
        assert time.monotonic() < end, "they train on without their parent"
        time.sleep(0.1)


def test_what_is_wrong_is_said_once(tmp_path, warm_svt):
    status, output = finish(start([warm_svt], tiny_config(tmp_path / "nothing", tmp_path / "exp", trainer__devices=2)))
    assert status == 1
    assert output.count("there is no such data directory") == 1
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == [], "a failed start leaves nothing behind"


@pytest.mark.parametrize(
    ("status", "report", "kind", "says"),
    [
        (1, {"message": "data.train is wrong", "is_user_error": True}, UserError, r"^data\.train is wrong$"),
        (
            1,
            {"message": "Traceback ... KeyError: 7"},
            RuntimeError,
            r"process 1 of 4 failed with status 1:\n.*KeyError: 7",
        ),
        (3, None, RuntimeError, r"process 1 of 4 failed with status 3:"),
        (-9, None, UserError, r"killed by signal 9 \(often: out of memory\); .* a smaller trainer\.micro_batch"),
        (-11, None, UserError, r"process 1 of 4 was killed by signal 11; the same command resumes"),
    ],
    ids=["user error", "other error", "no report", "out of memory", "segmentation fault"],
)
def test_how_a_process_failed_is_said(status, report, kind, says, tmp_path):
    if report is not None:
        (tmp_path / "error.json").write_text(json.dumps(report))
    failure = ProcessFailure(1, 4242, status, str(tmp_path / "error.json"))
    with pytest.raises(kind, match=says):
        raise processes._failure(1, 4, failure)


def test_other_configurations_are_refused(speech, tmp_path, warm_svt):
    port = str(free_port())
    ranks = [ENVIRONMENT | {"RANK": rank, "MASTER_PORT": port} for rank in ("0", "1")]
    both = [
        start([warm_svt], tiny_config(speech, tmp_path / "exp", seed=seed), **own)
        for own, seed in zip(ranks, (1, 2), strict=True)
    ]
    outcomes = [finish(process) for process in both]
    for status, output in outcomes:
        assert status == 1
        assert "process 1 of 2 was started with another configuration or version than process 0" in output
    assert not (tmp_path / "exp" / "config.yaml").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"trainer__devices": 0}, "trainer.devices is 0, expected 1 or more"),
        ({"trainer__devices": 3}, r"trainer\.batch_size is 8, which 3 processes .* such as 9"),
        (
            {"trainer__devices": 2, "trainer__micro_batch": 3},
            r"trainer\.micro_batch is 3, expected a divisor of trainer\.batch_size / 2 processes, which is 4",
        ),
        ({"trainer__sync_batch_norm": True}, r"sync_batch_norm=true needs several devices.*leave it at false"),
        ({"loss__shard": True}, r"loss\.shard=true needs several devices.*leave it at false"),
        ({"trainer__devices": 2, "trainer__sync_batch_norm": True}, r"sync_batch_norm=true needs CUDA"),
        ({"trainer__devices": 2, "trainer__epochs": 0}, r"trainer\.epochs is 0, expected 1 or more"),
    ],
    ids=["none", "three", "micro-batch", "one to synchronise", "one to shard", "not on the CPU", "out of range"],
)
def test_numbers_that_cannot_be_are_refused_before_a_process_starts(changes, says, tmp_path, monkeypatch):
    """And before anything is read or written."""
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", lambda process: pytest.fail("a process starts"))
    monkeypatch.setattr(experiment, "train", lambda config: pytest.fail("it goes on to train"))
    with pytest.raises(UserError, match=says):
        launch(tiny_config(tmp_path / "nothing", tmp_path / "exp", **changes))
    assert not (tmp_path / "exp").exists()


def test_refusals_of_numbers_need_no_torch():
    """Which takes longer to import than all else that a refusal needs."""
    code = "import sys, svtoolkit.training.launch, svtoolkit.commands.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def two_gpus(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
def test_a_process_has_a_gpu_of_its_own(speech, tmp_path):
    rank = Rank(rank=5, size=6, local_rank=1, local_size=2)
    assert processes.device_of("auto", rank) == torch.device("cuda", 1)
    assert processes.device_of("cpu", rank) == torch.device("cpu")
    with pytest.raises(UserError, match=r"trainer\.device is cuda:1, one GPU for 6 processes; expected auto, cuda"):
        processes.device_of("cuda:1", rank)
    with pytest.raises(UserError, match=r"needs 4 GPUs on this machine, and torch sees 2; lower trainer\.devices"):
        launch(tiny_config(speech, tmp_path / "exp", trainer__devices=4, trainer__device="cuda"))


def set_rank(monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    for name, value in {**ENVIRONMENT, "MASTER_PORT": "1", **changes}.items():
        monkeypatch.setenv(name, value)


def test_an_impossible_rank_is_refused(monkeypatch, speech, tmp_path):
    config = tiny_config(speech, tmp_path / "exp", trainer__devices=3)
    set_rank(monkeypatch)
    with pytest.raises(UserError, match=r"trainer\.devices is 3, but 2 processes were started on this machine; leave"):
        launch(config)
    monkeypatch.setenv("LOCAL_RANK", "first")
    with pytest.raises(UserError, match="expected numbers in RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, found"):
        launch(config)
    monkeypatch.setenv("LOCAL_RANK", "1")
    for name, value, says in (
        ("RANK", "2", "RANK is 2, expected 0 to 1 where WORLD_SIZE is 2"),
        ("RANK", "-1", "RANK is -1, expected 0 to 1 where WORLD_SIZE is 2"),
        ("WORLD_SIZE", "0", "RANK is 0, but WORLD_SIZE is 0, expected 1 or more"),
        ("LOCAL_RANK", "7", "LOCAL_RANK is 7, expected 0 to 1 where LOCAL_WORLD_SIZE is 2"),
        ("MASTER_PORT", "http", "MASTER_PORT is 'http', expected a number from 1 to 65535"),
        ("MASTER_PORT", "0", "MASTER_PORT is '0', expected a number from 1 to 65535"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            with pytest.raises(UserError, match=f"{says}; start the run with torchrun, which sets all"):
                launch(config)
    monkeypatch.delenv("MASTER_PORT")
    with pytest.raises(UserError, match=r"RANK, .* are set and MASTER_PORT are not; start the run with torchrun"):
        launch(config)


def test_ctrl_c_ends_a_process_that_waits_for_the_others(speech, tmp_path, warm_svt):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        pytest.skip("signal 2 is ignored here, and so it is by what is started here")
    port = free_port()
    process = start([warm_svt], tiny_config(speech, tmp_path / "exp"), **ENVIRONMENT, MASTER_PORT=str(port))
    end = time.monotonic() + 60
    with socket.socket() as probe:
        while probe.connect_ex(("127.0.0.1", port)):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    status, output = finish(process, timeout=60)
    assert status == -signal.SIGINT
    assert "Traceback" not in output


def test_alone_where_two_are_expected(monkeypatch, speech, tmp_path):
    monkeypatch.setattr(world_module, "PREFLIGHT_TIMEOUT", timedelta(seconds=1))
    port = free_port()
    set_rank(monkeypatch, MASTER_PORT=str(port))
    with pytest.raises(UserError, match=rf"process 0 of 2 could not reach the others through gloo at 127.0.0.1:{port}"):
        launch(tiny_config(speech, tmp_path / "exp"))
    assert not dist.is_initialized()


def test_windows_starts_no_processes(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "setpgid")
    with pytest.raises(UserError, match=r"trainer\.devices is 2, and several processes need Linux or macOS"):
        launch(tiny_config(tmp_path, tmp_path / "exp", trainer__devices=2))
    assert not (tmp_path / "exp").exists()
