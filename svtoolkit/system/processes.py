"""Worker processes: they leave Ctrl-C to the process that started them, and end when it ends, however that is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from svtoolkit.errors import UserError

Arguments = ParamSpec("Arguments")
Item = TypeVar("Item")
Result = TypeVar("Result")


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_processes(jobs: int, *, killed: str, forked: bool = False) -> Iterator[Executor]:
    """Processes that take over calls; on leaving the block no call is started any more, running ones are waited for.

    A script must use this under ``if __name__ == "__main__"``.

    Args:
        jobs: processes, each started when there is work for it.
        killed: the sentence for the user where the system kills one, mostly because memory ran out.
        forked: they have from the start what this process has imported; for work that needs none of the threads that a
            forked child lacks, those of torch among them.

    Raises:
        UserError: that sentence.
    """
    context = multiprocessing.get_context("fork" if forked else "spawn")
    executor = _Workers(jobs, context, initializer=_start_worker)
    try:
        yield executor
    except BrokenProcessPool as error:
        raise UserError(killed) from error
    finally:
        executor.shutdown(cancel_futures=True)


def map_unordered(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int, *, killed: str
) -> Generator[tuple[Item, Result], None, None]:
    """Items and what becomes of them, as they are finished; closing the generator begins no more of them.

    Args:
        jobs: processes; of one, or one item, this process does the work.
        killed: as for ``worker_processes``.

    Raises:
        UserError: as ``worker_processes``; what the function raises.
    """
    if jobs == 1 or len(items) < 2:
        yield from ((item, function(item)) for item in items)
        return
    with worker_processes(min(jobs, len(items)), killed=killed) as workers:
        waiting = {workers.submit(function, item): item for item in items}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


class _Workers(ProcessPoolExecutor):
    """Starts its processes where work is submitted."""

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        # A process that is started there must not die of Ctrl-C on its way.
        with block_signals({signal.SIGINT}):
            return super().submit(fn, *args, **kwargs)


@contextmanager
def block_signals(signals: Collection[int]) -> Iterator[None]:
    """Signals are delivered at the end of the block; processes started in it inherit the mask."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """From now on this process ends when the one that started it ends, however that is."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _start_worker() -> None:
    """The terminal sends Ctrl-C to all processes: the parent acts on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
