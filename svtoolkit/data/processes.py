"""Processes that work for another one: it alone answers Ctrl-C, and they end when it ends, however that is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from svtoolkit.errors import UserError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@contextmanager
def worker_processes(jobs: int, *, killed: str) -> Iterator[Executor]:
    """Processes that take over calls; on leaving the block no more calls are begun and those begun are waited for.

    A script must use this under ``if __name__ == "__main__"``.

    Args:
        jobs: processes, each started when there is work for it.
        killed: the sentence for the user where the system kills one, mostly for want of memory.

    Raises:
        UserError: that sentence.
    """
    # spawn: a forked child would inherit the threads of torch and of the caller.
    executor = _Workers(jobs, multiprocessing.get_context("spawn"), initializer=_obey_parent_alone)
    try:
        yield executor
    except BrokenProcessPool as error:
        raise UserError(killed) from error
    finally:
        executor.shutdown(cancel_futures=True)


class _Workers(ProcessPoolExecutor):
    """Starts its processes where work is submitted."""

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        with _interrupts_held():
            return super().submit(fn, *args, **kwargs)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: a process that is started there must not die of it on its way."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _obey_parent_alone() -> None:
    """Ctrl-C reaches all processes; the parent answers it, and the others end with the work in hand, or with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
