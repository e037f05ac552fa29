"""SIGTERM and SIGINT ask the loop to stop after the step it is in."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

ASKING = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends the process at once: where C++ code waits for others, Python's handler would wait with it."""
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def leave_on_interrupt() -> Iterator[None]:
    """Ctrl-C ends the process at once, with a word: for imports.

    Packages that try what they find (numpy, scipy) take a KeyboardInterrupt for something else, and end in an error of
    another kind. Where Ctrl-C is ignored or handled already, as in a program that calls svtoolkit, it stays so.
    """
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    with suppress(Exception):  # of a stream that was just being written to
        sys.stdout.flush()
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


class StopRequest:
    """Context in which the first SIGTERM or SIGINT is remembered and a second one acts at once.

    Attributes:
        signal_number: the signal that asked, or None.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in ASKING:
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()


def ignore_terminal_signals() -> None:
    """For loader workers: Ctrl-C and batch systems signal every process, and the main one alone acts on it.

    The parent's own SIGTERM still ends a worker: Python sends it at exit to the children that are left, and then waits
    for them. Where the system does not say who sent a signal (macOS), any SIGTERM ends a worker.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        threading.Thread(target=_end_on_sigterm_of_parent, daemon=True).start()


def _end_on_sigterm_of_parent() -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
        pass
    os._exit(0)
