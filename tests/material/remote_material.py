"""An HTTP server that fails as it is told to, and what a cache of shards fetches and holds."""

from __future__ import annotations

import http.server
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from svtoolkit.audio.shards.remote_cache import RemoteShards

MIB = 1 << 20


class Server(http.server.ThreadingHTTPServer):
    """Serves byte strings by path and remembers what was asked for.

    Attributes:
        files: path -> content.
        asked: paths in the order of the requests for content.
        answers: statuses (or "cut", "silent", "drip", "slow head", "vague", "reset", "longer", "other") given one
            after the other before all is well.
        has_head: it tells sizes without the content, too.
        delay: seconds before an answer.
        closing: the end of the test, which a silent answer waits for.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.answers: list[int | str] = []
        self.delay = 0.0
        self.has_head = True
        self.closing = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        """As GET would answer, of which it uses up nothing."""
        answer = self.server.answers[0] if self.server.answers else 200
        content = self.server.files.get(self.path)
        if not self.server.has_head:
            self.send_error(405)
        elif isinstance(answer, int) and (answer != 200 or content is None):
            self.send_error(404 if answer == 200 else answer)
        else:
            self.send_response(200)
            if answer != "vague":
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        time.sleep(self.server.delay)
        answer = self.server.answers.pop(0) if self.server.answers else 200
        content = self.server.files.get(self.path)
        if isinstance(answer, int) and (answer != 200 or content is None):
            self.send_error(404 if answer == 200 else answer)
            return
        if answer == "reset":
            self.connection.close()
            return
        if answer == "slow head":
            self._drip(b"HTTP/1.0 200 OK\r\n" + b"X-Slow: yes\r\n" * 1000)
            return
        if answer in ("longer", "other"):
            content = content * 3 if answer == "longer" else content[:-1]
        self.send_response(200)
        if answer not in ("vague", "longer"):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if answer == "drip":
            self._drip(content)
            return
        if answer == "silent":
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.server.closing.wait(30)
            return
        self.wfile.write(content[: len(content) // 2] if answer == "cut" else content)

    def _drip(self, content: bytes) -> None:
        """A byte at a time, until the other side has enough of it."""
        with suppress(OSError):
            for byte in content:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server.closing.wait(0.02):
                    return

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


def content_of(cache: Path) -> dict[str, bytes]:
    """Archives of a cache, without what makes their names unique; everything else under its own name."""
    return {path.name.partition("-")[2]: path.read_bytes() for path in cache.iterdir() if path.is_file()}


def fetch(remote: RemoteShards, url: str) -> Path:
    """Fetch an archive unless it is there; where it is kept."""
    descriptor = remote.open(url)
    remote.unlock(descriptor)
    os.close(descriptor)
    return remote._place(url)
