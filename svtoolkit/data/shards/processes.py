"""Several shards at a time, each by a process of its own: encoding keeps a core busy."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from svtoolkit.data.shards.shard_file import ShardRecord, ShardTask, make_shard
from svtoolkit.errors import UserError


def make_shards(tasks: Sequence[ShardTask], jobs: int) -> Generator[tuple[int, ShardRecord], None, None]:
    """Make shards as processes become free; closing the generator begins no more of them.

    Yields:
        number of a shard that is finished, and what it holds.

    Raises:
        UserError: a process was killed.
        OSError: a shard could not be written; names its file.
    """
    if jobs == 1 or len(tasks) < 2:
        yield from ((task.number, make_shard(task)) for task in tasks)
        return
    # spawn: a forked child would inherit the threads of torch and of the caller.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(min(jobs, len(tasks)), context, initializer=_obey_parent_alone)
    try:
        numbers = {executor.submit(make_shard, task): task.number for task in tasks}
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    except BrokenProcessPool as error:
        raise UserError(
            f"{tasks[0].out}: a worker process was killed, for want of memory perhaps; finished shards are kept: run "
            "the same command again, with fewer jobs"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def _obey_parent_alone() -> None:
    """Ctrl-C reaches all processes; only the parent answers. A worker whose parent is killed ends at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
