"""How far a long command is: a bar in a terminal, elsewhere a line a minute, both on standard error.

The bar is tqdm's, with a text that fits the terminal as it is now; a log file or the output of a batch system gets
lines that `tail` and `grep` can read.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import IO, Any, Protocol

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

LINE_SECONDS = 60.0
"""From one line to the next."""

STARTING_SECONDS = 1.0
"""What is done within them was there already, from a run that was stopped: it tells nothing of the rate."""

SHORTEST_BAR = 10
DEFAULT_COLUMNS = 80
"""Of a terminal that does not say how wide it is."""


class Progress(Protocol):
    """What a command tells while it works."""

    @property
    def n(self) -> float:
        """Done so far."""

    def update(self, n: float = 1) -> object:
        """So many more are done."""

    def tell(self, *details: str) -> None:
        """What else there is to say, the most important first; a narrow terminal shows what it has room for."""

    def write(self, text: str) -> None:
        """A line on standard output, above the bar where there is one."""


@contextmanager
def show_progress(
    what: str,
    total: int | None,
    unit: str,
    *,
    done: int = 0,
    shown: bool = True,
    leave: bool = True,
    delay: float = 0.0,
    scaled: bool = False,
    each: tuple[int, str] | None = None,
    every: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Progress]:
    """Show how far the block is.

    Args:
        what: name of the work, in front.
        total: None where it is not known.
        unit: of what is counted.
        done: counted already before the block.
        shown: False: nothing is.
        leave: whether the bar stays in the terminal when the block ends.
        delay: seconds before a bar is drawn.
        scaled: 3.21G instead of 3210000000.
        each: what one of them holds, by which the rate is told: (256, "utt").
        every: seconds from line to line where standard error is no terminal; None: LINE_SECONDS.
        clock: seconds, for the lines.
    """
    if shown and is_terminal(sys.stderr):
        with _Bar(
            desc=what, total=total, unit=unit, initial=done, leave=leave, delay=delay, ncols=DEFAULT_COLUMNS,
            nrows=sys.maxsize, mininterval=0.2, smoothing=0.05, file=sys.stderr, scaled=scaled, each=each or (1, unit),
        ) as bar:  # fmt: skip
            yield bar
        return
    seconds = LINE_SECONDS if every is None else every
    yield _Lines(what, total, unit, done, scaled, each or (1, unit), seconds if shown else None, clock)


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a line can be drawn over again there."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    except ValueError:  # closed
        return False


def count_columns(terminal: IO[str]) -> int:
    """Its width now; DEFAULT_COLUMNS where it does not know, as a terminal without a window."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, ValueError):
        return DEFAULT_COLUMNS


def logs_above_bars(logger: logging.Logger) -> AbstractContextManager[None]:
    """Inside the block what the logger prints to a terminal does not run into a bar."""
    return logging_redirect_tqdm([logger])


def lock_within_process() -> None:
    """Bars of this process are not kept apart from those of others: a semaphore of the system outlives a kill."""
    tqdm.set_lock(threading.RLock())


class _Bar(tqdm):
    """A bar whose text fits the terminal at every drawing."""

    def __init__(self, *, scaled: bool, each: tuple[int, str], **options: Any) -> None:
        self.details: tuple[str, ...] = ()
        self.scaled, self.each = scaled, each
        self.stream = options["file"]
        super().__init__(**options)

    def tell(self, *details: str) -> None:
        self.details = details

    def write(self, text: str) -> None:  # type: ignore[override]
        tqdm.write(text, file=sys.stdout)

    def __str__(self) -> str:
        facts = self.format_dict
        elapsed, done = facts["elapsed"], facts["n"] - facts["initial"]
        rate = facts["rate"] or (done / elapsed if elapsed > 0 else 0.0)
        left = (facts["total"] - facts["n"]) / rate if facts["total"] and rate else None
        return draw_bar(
            facts["prefix"].removesuffix(": "),
            facts["n"] / facts["total"] if facts["total"] else None,
            _counts(facts["n"], facts["total"], self.scaled),
            f"{duration(elapsed)}<{duration(left)}, {_rate(rate, self.each, self.scaled)}",
            duration(left),
            self.details,
            count_columns(self.stream) - 1,
        )

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        """Draws over what is there; tqdm's own would fill up with blanks to a width that the terminal may have lost."""

        def draw(text: str) -> None:
            with suppress(OSError):
                file.write(f"\r{text}\x1b[K")
                file.flush()

        return draw


class _Lines:
    """A line after so many seconds, when something is told; ``every`` None: never."""

    def __init__(
        self, what: str, total: int | None, unit: str, done: int, scaled: bool, each: tuple[int, str],
        every: float | None, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.what, self.total, self.unit, self.scaled, self.each = what, total, unit, scaled, each
        self.n: float = done
        self.details: tuple[str, ...] = ()
        self._every, self._clock = every, clock
        self._first: tuple[float, float] = (clock(), done)
        self._last: tuple[float, float] = self._first
        self._lock = threading.Lock()

    def update(self, n: float = 1) -> None:
        with self._lock:
            self.n += n
            now = self._clock()
            if now - self._first[0] < STARTING_SECONDS:
                self._first = self._last = self._first[0], self.n
            if self._every is not None and now - self._last[0] >= self._every:
                self._print(now)
                self._last = now, self.n

    def tell(self, *details: str) -> None:
        self.details = details

    def write(self, text: str) -> None:
        print(text, flush=True)

    def _print(self, now: float) -> None:
        begin, before = self._first
        rate = (self.n - self._last[1]) / max(now - self._last[0], 1e-9)
        mean = (self.n - before) / max(now - begin, 1e-9)
        share = f" ({100 * self.n / self.total:.0f} %)" if self.total else ""
        parts = [f"{_counts(self.n, self.total, self.scaled)} {self.unit}{share}", *self.details]
        parts.append(_rate(rate, self.each, self.scaled))
        if self.total:
            parts.append(f"ETA {duration((self.total - self.n) / mean if mean else None)}")
        with suppress(OSError, ValueError):  # nobody reads it
            print(f"{self.what}: {', '.join(parts)}", file=sys.stderr, flush=True)


def draw_bar(
    what: str, share: float | None, counts: str, pace: str, left: str, details: tuple[str, ...], width: int
) -> str:
    """As much as fits into ``width`` columns: first the later details go, then the bar, then counts and name.

    Args:
        share: that is done, 0 to 1; None: unknown.
        pace: time so far and to come, and rate.
        left: time to come.
    """
    percent = "" if share is None else f"{100 * min(share, 1.0):3.0f}%"
    fewer = [details[:shown] for shown in range(len(details), min(len(details), 1) - 1, -1)]
    for told in fewer:
        head, tail = f"{what}: {percent}", f" {counts} [{', '.join([pace, *told])}]"
        room = width - len(head) - len(tail) - 2
        if share is None and len(head) + len(tail) <= width:
            return head.rstrip() + tail
        if share is not None and room >= SHORTEST_BAR:
            filled = round(room * min(share, 1.0))
            return f"{head}|{'#' * filled}{'-' * (room - filled)}|{tail}"
    eta = f"ETA {left}"
    forms = [[what, percent, counts, eta, *told] for told in fewer]
    for form in [*forms, [what, percent, eta, *details[:1]], [what, percent, eta]]:
        text = " ".join(part.strip() for part in form if part)
        if len(text) <= width:
            return text
    end = f" {percent.strip() or counts}"
    name = what if len(what) + len(end) <= width else what[: max(0, width - len(end) - 1)] + "…"
    return f"{name}{end}"[: max(0, width)]


def duration(seconds: float | None) -> str:
    """45 s as 0:45, 3725 s as 1:02:05, two days as 48:00:00; None: ?."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _counts(done: float, total: float | None, scaled: bool) -> str:
    shown = [tqdm.format_sizeof(number) if scaled else str(number) for number in (done, *([total] if total else []))]
    return "/".join(shown)


def _rate(rate: float, each: tuple[int, str], scaled: bool) -> str:
    number, unit = each
    value = rate * number
    return f"{tqdm.format_sizeof(value) if scaled else f'{value:.3g}' if value < 100 else f'{value:.0f}'} {unit}/s"
