from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from remote_material import Server

from svtoolkit.data.shards import remote_cache


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.closing.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays between attempts, which nobody waits for."""
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr(remote_cache, "time", clock)
    return waited
