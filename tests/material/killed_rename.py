"""A process that kills itself while it gives a file its name."""

from __future__ import annotations

import os
import signal

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
