"""Processes forked from one that has imported all that training needs: they start at once."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch

CONTEXT = multiprocessing.get_context("forkserver")
# torch._dynamo: what the first optimizer imports, for a second or two.
CONTEXT.set_forkserver_preload(
    [
        "svtoolkit.commands.train",
        "svtoolkit.training.experiment",
        "svtoolkit.training.processes",
        "torch._dynamo",
        "torch.distributed.fsdp",
        "torch.utils.tensorboard",
        "warm_composition",
    ]
)


def make_ready() -> None:
    """Start the process that others are forked from, where none is there yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where warm_composition lies
        forkserver.ensure_running()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_group(work: Callable[..., None], size: int, *arguments: Any) -> None:
    """Call ``work(rank, *arguments)`` in each of so many processes, which find each other as torchrun's do.

    Raises:
        ProcessRaisedException: with the traceback of the first that failed.
    """
    make_ready()
    torch.multiprocessing.start_processes(
        _with_address, (free_port(), work, *arguments), nprocs=size, start_method="forkserver"
    )


def _with_address(rank: int, port: int, work: Callable[..., None], *arguments: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    work(rank, *arguments)
