"""The benchmark of the service: a few requests of a small network, none of which is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httpx")


def test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import serving

    monkeypatch.setattr(serving, "SECONDS", 1.0)
    monkeypatch.setattr(serving, "QUEUE", 0)
    monkeypatch.setattr(serving, "TURNS", 2)
    output = tmp_path / "serving.json"
    words = ["--output", str(output), "--model", "resnet10", "--requests", "3", "--askers", "1", "3"]
    assert serving.main(words) == 0
    record = json.loads(output.read_text())
    assert record["accepted_but_not_stored"] == 0
    assert record["alone_ms"] > 0
    alone, together = record["results"]
    assert (alone["askers"], alone["requests"], alone["refused_429"]) == (1, 3, 0)
    assert together["refused_429"] > 0
    for row in (alone, together):
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
        assert row["per_second"] > 0
