"""One process or several: alone, as torchrun placed it, or started here, one a device."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
import traceback
from dataclasses import asdict
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch
from tqdm import tqdm

from svtoolkit import __version__
from svtoolkit.config import TrainConfig
from svtoolkit.device import choose_device
from svtoolkit.distributed.world import PLACE, Place, joined, place_in_environment
from svtoolkit.errors import UserError
from svtoolkit.system.processes import block_signals, end_with_parent
from svtoolkit.system.signals import ASKING
from svtoolkit.training.experiment import train

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""For the other processes to say what is wrong, once one has ended in failure; then they are killed."""


def launch(config: TrainConfig) -> int | None:
    """Train on ``trainer.devices`` devices of this machine, or as one of the processes that torchrun started.

    Returns:
        as ``train``.

    Raises:
        UserError: as ``train``, or fewer devices than asked for, or a process that was killed.
    """
    place, devices = place_in_environment(), config.trainer.devices
    if devices < 1:
        raise UserError(f"trainer.devices is {devices}, expected 1 or more")
    if place is not None:
        if devices not in (1, place.local_size):
            raise UserError(
                f"trainer.devices is {devices}, but {place.local_size} processes were started on this machine; "
                "leave trainer.devices out where torchrun starts the run"
            )
        return _train_in_place(config, place)
    return train(config) if devices == 1 else _start_processes(config)


def _train_in_place(config: TrainConfig, place: Place) -> int | None:
    if place.rank:
        logging.getLogger("svtoolkit").setLevel(logging.WARNING)
    agreed = json.dumps([__version__, asdict(config)], sort_keys=True)
    with joined(place, _device_of(config.trainer.device, place), agreed) as world:
        return train(config, world)


def _device_of(name: str, place: Place) -> torch.device:
    """One card a process, in their order; or the CPU for all.

    Raises:
        UserError: a single card for several processes, or fewer cards than processes.
    """
    device = choose_device(name)
    if device.type == "cpu":
        return device
    if device.index is not None:
        raise UserError(f"trainer.device is {name}, one card for {place.size} processes; expected auto, cuda or cpu")
    if place.local_size > torch.cuda.device_count():
        raise UserError(
            f"{place.local_size} devices are wanted on this machine, and torch sees {torch.cuda.device_count()} cards; "
            "lower trainer.devices, or set trainer.device=cpu"
        )
    return torch.device("cuda", place.local_rank)


def _start_processes(config: TrainConfig) -> int | None:
    """Start one process a device, hand signals on to them, and end all where one fails."""
    count = config.trainer.devices
    _device_of(config.trainer.device, Place(0, count, 0, count))
    context = multiprocessing.get_context("spawn")
    port = _free_port()
    processes: list[SpawnProcess] = []
    answers: list[Connection] = []
    try:
        with _SignalsHandedOn(processes) as signals:
            resource_tracker.ensure_running()  # which lets signals in when it begins
            with block_signals(ASKING):
                for rank in range(count):
                    ours, theirs = context.Pipe(duplex=False)
                    place = Place(rank, count, rank, count)
                    arguments = (config, place, port, theirs)
                    process = context.Process(target=_run_process, args=arguments, name=f"rank {rank}")
                    process.start()
                    theirs.close()
                    processes.append(process)
                    answers.append(ours)
            found = _answers(processes, answers)
    finally:
        for process in processes:
            process.kill()
            process.join()
    for number in signals.handed_on:
        if ("died", -number) in found.values():  # there was nothing to save yet
            os.kill(os.getpid(), number)
    return _outcome(found, count)


def _answers(processes: list[SpawnProcess], answers: list[Connection]) -> dict[int, tuple[str, Any]]:
    """Rank -> what became of it, in the order in which they ended; without those that others wait for in vain."""
    found: dict[int, tuple[str, Any]] = {}
    failed_at: float | None = None
    pending = dict(enumerate(processes))
    while pending:
        patience = None if failed_at is None else max(0.0, failed_at + GRACE_SECONDS - time.monotonic())
        if not wait([process.sentinel for process in pending.values()], patience):
            break
        for rank, process in [(rank, process) for rank, process in pending.items() if not process.is_alive()]:
            del pending[rank]
            try:
                found[rank] = answers[rank].recv()
            except EOFError:  # it closed its end without a word
                found[rank] = ("died", process.exitcode)
            if found[rank][0] != "finished" and failed_at is None:
                failed_at = time.monotonic()
    return found


def _outcome(found: dict[int, tuple[str, Any]], count: int) -> int | None:
    """What all answered, or the first thing that went wrong, a user's error before any other."""
    outcomes = list(found.items())
    for kind in ("user", "died", "error"):
        for rank, (said, value) in outcomes:
            if said == kind:
                raise _failure(kind, rank, count, value)
    return outcomes[0][1][1]


def _failure(kind: str, rank: int, count: int, value: Any) -> Exception:
    if kind == "user":
        return UserError(value)
    if kind == "died":
        how = f"was killed by signal {-value}" if value < 0 else f"ended with status {value}"
        return UserError(
            f"process {rank} of {count} {how} without a word (signal 9 often means that memory ran out); the same "
            "command goes on from the newest state; a run that begins anew takes less memory with a smaller "
            "trainer.micro_batch or memory=reversible"
        )
    return RuntimeError(f"process {rank} of {count} failed:\n{value}")


def _run_process(config: TrainConfig, place: Place, port: int, answer: Connection) -> None:
    """Body of a process that was started here."""
    os.setpgid(0, 0)  # Ctrl-C at the terminal is the parent's to hand on: once, and to all
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of what was being imported or read
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
    end_with_parent()
    tqdm.set_lock(threading.RLock())  # its own would be a semaphore of the system, left behind where this is killed
    os.environ.update(zip(PLACE, [*map(str, place), "127.0.0.1", str(port)], strict=True))
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("svtoolkit").setLevel(logging.INFO)
    try:
        answer.send(("finished", _train_in_place(config, place)))
    except UserError as error:
        answer.send(("user", str(error)))
    except Exception:
        answer.send(("error", traceback.format_exc()))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _SignalsHandedOn:
    """Context in which signals that ask to stop reach the processes instead of this one.

    Attributes:
        handed_on: those that came.
    """

    def __init__(self, processes: list[SpawnProcess]) -> None:
        self.processes = processes
        self.handed_on: list[int] = []

    def __enter__(self) -> _SignalsHandedOn:
        self._previous = {number: signal.signal(number, self._hand_on) for number in ASKING}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _hand_on(self, number: int, frame: object) -> None:
        self.handed_on.append(number)
        for process in self.processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)
