"""Calls to a server, made in a thread of their own: a run never waits for a network."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable


class Background:
    """Makes calls one after the other. The first that fails is the last; what it raised, the next ``put`` raises.

    The thread is a daemon: a process that ends does not wait for it.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.Queue[Callable[[], object]] = queue.Queue()
        self._error: Exception | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, call: Callable[[], object]) -> None:
        """Have a call made.

        Raises:
            Exception: what an earlier one raised.
        """
        self._raise_error()
        self._calls.put(call)

    def finish(self, seconds: float) -> None:
        """Wait until all calls are made.

        Raises:
            TimeoutError: they are not after so many seconds.
            Exception: what one of them raised.
        """
        deadline = time.monotonic() + seconds
        while self._calls.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)
        self._raise_error()
        if self._calls.unfinished_tasks:
            raise TimeoutError(f"{self._calls.unfinished_tasks} calls were not answered within {seconds:g} s")

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            try:
                if self._error is None:
                    call()
            except Exception as error:
                self._error = error
            finally:
                self._calls.task_done()
