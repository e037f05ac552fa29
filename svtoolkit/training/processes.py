"""Several processes that train together, one a device: started here by torch's elastic multiprocessing, or by torchrun.

torch starts the processes, passes them their environment and what they return, and ends all where one fails. Its agent
above that, which torchrun runs (``elastic_launch``), answers a signal with an exception, so that it stays unknown
whether the processes saved a state. Kept around ``start_processes`` are what it leaves open: signals reach each process
once and the parent waits for the state; the processes end with their parent, even where that is killed; errors of the
user arrive as a sentence.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType

import torch
from torch.distributed.elastic import multiprocessing as elastic
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from svtoolkit import __version__
from svtoolkit.config import TrainConfig
from svtoolkit.device import autocast, choose_device
from svtoolkit.distributed.rank import RANK_VARIABLES, Rank, rank_in_environment
from svtoolkit.distributed.world import process_group
from svtoolkit.errors import UserError
from svtoolkit.system.output import DiscreetFormatter
from svtoolkit.system.processes import block_signals, end_with_parent
from svtoolkit.system.progress import lock_within_process
from svtoolkit.system.signals import ASKING
from svtoolkit.training.experiment import train

GRACE_SECONDS = 3.0
"""For another process to say what is wrong, before this one reports an error that is probably a consequence of it."""

POLL_SECONDS = 0.05

ELASTIC_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)
"""That torch takes over when it starts processes."""


def train_as(rank: Rank, config: TrainConfig) -> int | None:
    """Train as one of several processes; as ``train``, and a UserError where the others cannot be reached."""
    if rank.rank:
        logging.getLogger("svtoolkit").setLevel(logging.WARNING)
    must_match = json.dumps([__version__, asdict(config)], sort_keys=True)
    with process_group(rank, device_of(config.trainer.device, rank), must_match) as world:
        return train(config, world)


def device_of(name: str, rank: Rank) -> torch.device:
    """One GPU a process, in their order; or the CPU for all.

    Raises:
        UserError: a single GPU for several processes, or fewer GPUs than processes.
    """
    device = choose_device(name, "trainer.device")
    if device.type == "cpu":
        return device
    if device.type == "mps":
        raise UserError(f"trainer.device is mps, one GPU for {rank.size} processes; use trainer.devices=1")
    if device.index is not None:
        raise UserError(f"trainer.device is {name}, one GPU for {rank.size} processes; expected auto, cuda or cpu")
    if rank.local_size > torch.cuda.device_count():
        raise UserError(
            f"this run needs {rank.local_size} GPUs on this machine, and torch sees {torch.cuda.device_count()}; "
            "lower trainer.devices, or set trainer.device=cpu"
        )
    return torch.device("cuda", rank.local_rank)


def start_processes(config: TrainConfig) -> int | None:
    """Start one process a device, forward signals to them, and end all where one fails; returns as ``train``."""
    count = config.trainer.devices
    if not hasattr(os, "setpgid"):
        raise UserError(
            f"trainer.devices is {count}, and several processes need Linux or macOS; use trainer.devices=1, or run "
            "the same in WSL"
        )
    device = device_of(config.trainer.device, Rank(0, count, 0, count))
    autocast(device, config.trainer.precision)  # refuses what the device cannot do
    for name in ("torch.distributed.elastic.multiprocessing.api", "torch.multiprocessing.spawn"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what they say of a failure is said here, in one sentence
    port = str(_free_port())
    environments = {
        rank: dict(zip(RANK_VARIABLES, [*map(str, Rank(rank, count, rank, count)), "127.0.0.1", port], strict=True))
        for rank in range(count)
    }
    result, forwarded = _run_processes(config, environments)
    gc.collect()  # torch's semaphores, which a signal would leave behind
    for rank, failure in result.failures.items():
        if -failure.exitcode in forwarded:  # it had nothing to save yet
            os.kill(os.getpid(), -failure.exitcode)
        raise _failure(rank, count, failure)
    return result.return_values[0]


def _run_processes(
    config: TrainConfig, environments: dict[int, dict[str, str]]
) -> tuple[elastic.RunProcsResult, list[int]]:
    """What became of them, and the signals that were forwarded to them."""
    with tempfile.TemporaryDirectory(prefix="svt-train-") as folder, _SignalsForwarded() as signals:
        resource_tracker.ensure_running()  # which lets signals in when it begins
        with block_signals(ASKING):
            context = elastic.start_processes(
                name="svt train",
                entrypoint=_run_process,
                args=dict.fromkeys(environments, (config,)),
                envs=environments,
                logs_specs=elastic.DefaultLogsSpecs(log_dir=folder),
            )
            signals.forward_to(context.pids().values())
        try:
            result = context.wait(period=POLL_SECONDS)
        finally:
            context.close(signal.SIGKILL)
    assert result is not None
    return result, signals.forwarded


def _failure(rank: int, count: int, failure: ProcessFailure) -> Exception:
    if failure.exitcode < 0:
        often = " (often: out of memory)" if -failure.exitcode == signal.SIGKILL else ""
        return UserError(
            f"process {rank} of {count} was killed by signal {-failure.exitcode}{often}; the same command resumes from "
            "the newest state; a new run takes less memory with a smaller trainer.micro_batch or memory=reversible"
        )
    if failure.error_file_data.get("is_user_error"):
        return UserError(failure.message)
    return RuntimeError(f"process {rank} of {count} failed with status {failure.exitcode}:\n{failure.message}")


def _run_process(config: TrainConfig) -> int | None:
    """Body of a process that was started here."""
    os.setpgid(0, 0)  # Ctrl-C at the terminal reaches the parent, which forwards it: once, and to all
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of what was being imported or read
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
    end_with_parent()
    lock_within_process()
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(DiscreetFormatter("%(message)s"))
    logging.getLogger("svtoolkit").setLevel(logging.INFO)
    try:
        rank = rank_in_environment()
        assert rank is not None
        return train_as(rank, config)
    except UserError as error:
        report = {"message": str(error), "is_user_error": True}
    except Exception:
        time.sleep(GRACE_SECONDS)
        report = {"message": traceback.format_exc()}
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(report), encoding="utf-8")
    sys.exit(1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _SignalsForwarded:
    """Context in which signals that ask to stop reach the processes instead of this one.

    Attributes:
        forwarded: those that came.
    """

    def __init__(self) -> None:
        self.forwarded: list[int] = []

    def __enter__(self) -> _SignalsForwarded:
        self._previous = {number: signal.getsignal(number) for number in ELASTIC_SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def forward_to(self, pids: Iterable[int]) -> None:
        """From now on."""

        def forward(number: int, frame: FrameType | None) -> None:
            self.forwarded.append(number)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

        for number, handler in self._previous.items():
            signal.signal(number, forward if number in ASKING else handler)
