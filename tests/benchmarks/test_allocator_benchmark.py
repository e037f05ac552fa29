"""The benchmark of freed memory: its rows."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import allocator


def test_rows(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(allocator, "NETWORKS", {"resnet10": (2, 30)})
    output = tmp_path / "allocator.json"
    words = f"--output {output} --networks resnet10 --threads 1 --turns 1"
    assert allocator.main(words.split()) == 0
    (row,) = json.loads(output.read_text())["rows"]
    assert (row["network"], row["crops"], row["frames"], row["threads"]) == ("resnet10", 2, 30, 1)
    for key in ("seconds", "processor", "peak"):
        assert row[f"times_{key}"] > 0
        assert min(row[f"{way}_{key}"] for way in allocator.WAYS) > 0
