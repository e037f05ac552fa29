"""A bar that fits its terminal, whatever becomes of its width, and lines where there is none."""

from __future__ import annotations

import fcntl
import io
import itertools
import logging
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr

import pytest

from svtoolkit.system.progress import draw_bar, duration, is_terminal, logs_above_bars, show_progress

DETAILS = ("loss 4.321", "epoch 3/50", "lr 0.093", "acc 12.1% (no margin 13.0%)", "margin 0.10", "wait 2%")


class Terminal:
    """The other end of a pseudo-terminal: keeps what is written to it."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w")

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self) -> str:
        """What was written since the last time; the kernel hands it over in its own time, so the end is marked."""
        self.stream.write("\0")
        self.stream.flush()
        found = b""
        while not found.endswith(b"\0"):
            found += os.read(self.master, 1 << 16)
        return found[:-1].decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self.master)


def drawings(text: str) -> list[str]:
    """What was drawn on a line, one after the other, without what erases the rest of it."""
    return [part.replace("\x1b[K", "") for part in re.split(r"[\r\n]+", text) if part.replace("\x1b[K", "").strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    found = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    yield found
    found.close()


@pytest.fixture
def clock() -> Callable[[], float]:
    """A clock that a test sets by its attribute ``now``."""

    def tell() -> float:
        return tell.now  # type: ignore[attr-defined]

    tell.now = 0.0  # type: ignore[attr-defined]
    return tell


@pytest.mark.parametrize("columns", [40, 120])
def test_a_bar_fits_its_terminal(columns, terminal):
    terminal.resize(columns)
    with (
        redirect_stderr(terminal.stream),
        show_progress("train", 20000, "step", done=1000, each=(256, "utt")) as progress,
    ):
        progress.tell(*DETAILS)
        for _ in range(20):
            progress.update()
            progress.refresh()
    drawn = drawings(terminal.read())
    assert len(drawn) > 20
    assert max(map(len, drawn)) < columns
    assert all("loss 4.321" in line and "5%" in line for line in drawn[1:])
    assert all(("|" in line and "1020/20000" in line) == (columns == 120) for line in drawn[-1:])
    assert all(("utt/s" in line) == (columns == 120) for line in drawn[1:])


def test_a_bar_follows_the_terminal(terminal):
    """Nothing is written past the edge of a terminal that has become narrower, not even what erases the old line."""
    lengths = []
    with redirect_stderr(terminal.stream), show_progress("embed", 1000, "utt") as progress:
        for columns in (120, 60, 30, 12, 100):
            terminal.resize(columns)
            terminal.read()
            progress.update(10)
            progress.refresh()
            parts = [part for part in terminal.read().split("\r") if part.strip()]
            lengths += [len(part.replace("\x1b[K", "")) for part in parts[-1:]]
            assert lengths[-1] < columns
    assert lengths[0] > 100
    assert lengths[-1] > 90
    assert lengths[3] > 5


def test_no_width_is_too_small():
    for width, details, share in itertools.product(range(1, 140), ((), DETAILS), (None, 0.0, 0.5, 1.0)):
        line = draw_bar("synthesise", share, "600/1200", "1:20<1:20, 7.5 utt/s", "1:20", details, width)
        assert 0 < len(line) <= width, (width, details, share)


def test_a_terminal_that_does_not_know_its_width_has_a_bar(terminal):
    with redirect_stderr(terminal.stream), show_progress("embed", 10, "utt") as progress:
        progress.update()
        progress.refresh()
    assert {len(line) for line in drawings(terminal.read())} == {79}


def test_what_a_narrow_terminal_shows():
    def drawn(width, name="train"):
        return draw_bar(name, 0.06, "1230/20000", "2:10<34:05, 1.2e+03 utt/s", "34:05", DETAILS, width)

    assert drawn(70) == "train 6% 1230/20000 ETA 34:05 loss 4.321 epoch 3/50 lr 0.093"
    assert drawn(39) == "train 6% ETA 34:05 loss 4.321"
    assert drawn(20) == "train 6% ETA 34:05"
    assert drawn(9, "calibrate") == "calib… 6%"


def test_without_a_terminal_there_is_a_line_a_minute(capsys, clock):
    with show_progress("train", 2000, "step", done=1000, each=(64, "utt"), clock=clock) as progress:
        for step in range(1, 181):
            clock.now += 1.0
            progress.tell(f"loss {step}", "epoch 3/50", "lr 0.1")
            progress.update(1 if step <= 60 else 2)
    assert capsys.readouterr().err.splitlines() == [
        "train: 1060/2000 step (53 %), loss 60, epoch 3/50, lr 0.1, 64 utt/s, ETA 15:40",
        "train: 1180/2000 step (59 %), loss 120, epoch 3/50, lr 0.1, 128 utt/s, ETA 9:07",
        "train: 1300/2000 step (65 %), loss 180, epoch 3/50, lr 0.1, 128 utt/s, ETA 7:00",
    ]


def test_what_an_earlier_run_has_done_is_no_part_of_the_rate(capsys, clock):
    with show_progress("convert", 1000, "utt", clock=clock) as progress:
        progress.update(880)
        clock.now = 60.0
        progress.update(60)
    assert capsys.readouterr().err == "convert: 940/1000 utt (94 %), 1 utt/s, ETA 1:00\n"


def test_short_work_says_nothing_without_a_terminal(capsys, clock):
    with show_progress("embed", 10, "utt", clock=clock) as progress:
        clock.now = 59.0
        progress.update(10)
    assert capsys.readouterr().err == ""


def test_bytes_and_unknown_totals(capsys, clock):
    with (
        show_progress("unpack", 3_000_000_000, "B", scaled=True, clock=clock) as known,
        show_progress("convert", None, "utt", clock=clock) as unknown,
    ):
        clock.now = 100.0
        known.update(1_000_000_000)
        unknown.update(50)
    assert capsys.readouterr().err.splitlines() == [
        "unpack: 1.00G/3.00G B (33 %), 10.0M B/s, ETA 3:20",
        "convert: 50 utt, 0.5 utt/s",
    ]


def test_what_is_not_shown_says_nothing(capsys, terminal, clock):
    for stream in (terminal.stream, sys.stderr):
        with (
            redirect_stderr(stream),
            show_progress("train", 10, "step", shown=False, every=0.0, clock=clock) as progress,
        ):
            progress.update()
    assert (terminal.read(), capsys.readouterr().err) == ("", "")


def test_a_reader_that_has_gone_ends_nothing(monkeypatch, clock):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    with show_progress("embed", 10, "utt", every=0.0, clock=clock) as progress:
        progress.update()
    assert progress.n == 1


def test_what_is_a_terminal(terminal, monkeypatch):
    assert is_terminal(terminal.stream)
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(terminal.stream)
    assert not is_terminal(io.StringIO())
    assert not is_terminal(None)


def test_the_log_stands_above_the_bar(terminal):
    terminal.resize(60)
    logger = logging.Logger("svtoolkit.test")
    logger.addHandler(logging.StreamHandler(terminal.stream))
    with redirect_stderr(terminal.stream), logs_above_bars(logger), show_progress("train", 10, "step") as progress:
        progress.update()
        progress.refresh()
        logger.warning("epoch 1/3: loss 4.2")
    assert re.search(r"\r(\x1b\[K)?epoch 1/3: loss 4\.2\r?\n\rtrain: ", terminal.read())


def test_durations():
    shown = [duration(seconds) for seconds in (0, 45.4, 725, 3725, 172800, None)]
    assert shown == ["0:00", "0:45", "12:05", "1:02:05", "48:00:00", "?"]
