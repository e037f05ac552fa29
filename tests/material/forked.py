"""Processes forked from one that has imported all that training needs, that of ``warm_svt``: they start at once."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from warm_svt import CALL, ID, connect

LIMIT = 120.0
"""Seconds until a process counts as hung, many times what one takes."""


class Forked:
    """A process that calls ``work(*arguments)`` in a group of its own; both are pickled.

    Attributes:
        pid: of the process, and of its group.
        exitcode: None while it runs, minus the signal that killed it.
    """

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self.exitcode: int | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this)
        content = pickle.dumps((work, arguments)).hex()
        request = [os.getpid(), [CALL, json.dumps(sys.path), content], os.getcwd(), dict(os.environ)]
        self._link = connect(request, [0, self._output.fileno(), self._output.fileno()])
        self.pid = int(self._link.recv(len(ID % 0), socket.MSG_WAITALL))

    def join(self, seconds: float = LIMIT) -> None:
        """Wait until it has ended.

        Raises:
            TimeoutError: it has not, and was killed.
        """
        if not self.wait(seconds):
            os.killpg(self.pid, signal.SIGKILL)
            raise TimeoutError(f"a process did not end within {seconds} s:\n{self.output()}")

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after so long at most."""
        if self.exitcode is None and select.select([self._link], [], [], seconds)[0]:
            self.exitcode = int(self._link.recv(16))
            self._link.close()
        return self.exitcode is not None

    def output(self) -> str:
        """What it has printed."""
        self._output.seek(0)
        return self._output.read().decode()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_group(work: Callable[..., None], size: int, *arguments: Any) -> None:
    """Call ``work(rank, *arguments)`` in each of so many processes, which find each other as torchrun's do.

    Raises:
        AssertionError: with what the first that failed has printed.
    """
    port = free_port()
    running = [Forked(_with_address, rank, port, work, *arguments) for rank in range(size)]
    end = time.monotonic() + LIMIT
    try:
        while running:
            for process in [process for process in running if process.wait(0.01)]:
                assert process.exitcode == 0, process.output()
                running.remove(process)
            assert time.monotonic() < end, [process.output() for process in running]
    finally:
        for process in running:
            if process.exitcode is None:
                os.killpg(process.pid, signal.SIGKILL)


def _with_address(rank: int, port: int, work: Callable[..., None], *arguments: Any) -> None:
    import torch

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    work(rank, *arguments)
