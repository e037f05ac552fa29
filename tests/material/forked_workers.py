"""The context of pools whose processes are forked from one that has imported what converts, shards and computes."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

WORK = [
    "svtoolkit.data.conversion_worker",
    "svtoolkit.data.archive_writer",
    "svtoolkit.data.feature_task",
    "svtoolkit.features.front_end",
]


def context() -> ForkServerContext:
    """One server a process of the tests, started by the first pool."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(WORK)
    return forking
