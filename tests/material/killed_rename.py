"""A process that kills itself while it gives a file its name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import svtoolkit.system.atomic


def kill_at_rename(number: int, *, after: bool) -> None:
    """This process is gone with its rename of this number, counted from 1: before it or ``after`` it."""
    plain, calls = os.replace, []

    def replace(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == number:
            if after:
                plain(source, target)
            os.kill(os.getpid(), signal.SIGKILL)
        plain(source, target)

    svtoolkit.system.atomic.os.replace = replace


def run_and_kill(work: Callable[..., object], number: int, *arguments: object, after: bool) -> int | None:
    """Call ``work(*arguments)`` in a process that is killed so; returns its exit status, -SIGKILL where it was."""
    from forked import Forked

    process = Forked(_work_until, work, number, arguments, after)
    process.join()
    return process.exitcode


def _work_until(work: Callable[..., object], number: int, arguments: tuple[object, ...], after: bool) -> None:
    kill_at_rename(number, after=after)
    work(*arguments)
