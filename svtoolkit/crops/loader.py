"""Crops on their way from loader processes to the loop."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from svtoolkit.audio.shards.reader import configure_remote, configured_remote
from svtoolkit.crops.crop import Crop, CropBatch, collate_crops
from svtoolkit.crops.sampler import BatchSampler
from svtoolkit.errors import UserError
from svtoolkit.system.processes import block_signals, count_cores
from svtoolkit.system.signals import ASKING, ignore_terminal_signals

if TYPE_CHECKING:
    from svtoolkit.audio.shards.remote_cache import RemoteShards

IS_FORKED = sys.platform == "linux" and hasattr(os, "fork")
"""Whether loader processes are forked; elsewhere they start anew, and get the data set by pickle."""

MOST_WORKERS = 8
"""For one device, where nobody says how many: more read no faster from most disks."""


def workers_of(num_workers: int | None, processes: int = 1) -> int:
    """Loader processes of one of so many processes that train on this machine, as asked for or as the cores allow."""
    if num_workers is not None:
        return num_workers
    return max(1, min(MOST_WORKERS, (count_cores() - 1) // processes))


def load_crops(
    dataset: Dataset[Crop], sampler: BatchSampler, *, num_workers: int, pin_memory: bool
) -> Generator[CropBatch, None, None]:
    """Micro-batches in the sampler's order; they do not depend on the number of workers, which end when it is closed.

    Args:
        num_workers: loader processes; 0 loads in this one.
        pin_memory: page-locked batches, which a GPU copies while it computes.

    Raises:
        UserError: a file that a crop is cut from cannot be used, whichever process found out.
    """
    loader = DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=collate_crops,
        num_workers=num_workers,
        worker_init_fn=partial(_initialise_worker, configured_remote()),
        # Children of this process itself: they look after it, and end when it is killed. Python 3.14 would put a
        # server in between.
        multiprocessing_context="fork" if num_workers and IS_FORKED else None,
        prefetch_factor=4 if num_workers else None,
        pin_memory=pin_memory,
        # One of its own: every loader takes a number from it, and a resumed run makes one loader more.
        generator=torch.Generator(),
    )
    return _with_plain_errors(loader)


def _initialise_worker(remote: RemoteShards | None, worker: int) -> None:
    configure_remote(remote)  # which a process that is not forked does not have from its parent
    ignore_terminal_signals()


def _with_plain_errors(loader: DataLoader[Any]) -> Generator[CropBatch, None, None]:
    """A user's error that was raised in a worker comes wrapped in the worker's traceback: give its sentence alone."""
    try:
        # A library may start a thread in a worker before our own code runs there: it inherits the mask.
        with block_signals(ASKING):
            batches = iter(loader)
        yield from batches
    except UserError as error:
        raise UserError(str(error).rpartition("UserError: ")[2].strip()) from error
