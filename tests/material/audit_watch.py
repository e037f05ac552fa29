"""Whatever runs code, writes or reaches out is seen, by an audit hook of this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_WRITES = ("w", "a", "x", "+")
_EVENTS = ("import", "exec", "compile", "marshal.loads", "pickle.find_class", "code.__new__", "builtins.breakpoint")
_BEGINNINGS = (
    "os.", "subprocess.", "socket.", "ctypes.", "shutil.", "tempfile.", "urllib.", "http.", "ftplib.", "smtplib.",
    "webbrowser.", "sys.set", "sqlite3.", "pty.", "cpython.run", "signal.",
)  # fmt: skip
_HARMLESS = ("os.listdir", "os.scandir", "os.walk", "os.fwalk")

_watched: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None:
        return
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        if any(sign in (mode or "") for sign in _WRITES) or (mode is None and flags & 3):
            _watched.append(f"{event} {arguments[0]} {mode}")
    elif event in _EVENTS or (event.startswith(_BEGINNINGS) and event not in _HARMLESS):
        _watched.append(f"{event} {arguments[:1]}")


sys.addaudithook(_hook)


@contextmanager
def watching() -> Iterator[list[str]]:
    """Whatever runs code, writes or reaches out within is listed."""
    global _watched
    _watched = seen = []
    try:
        yield seen
    finally:
        _watched = None
