"""The benchmark of extraction: a row a setting, each a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import embedding


def test_rows_and_record(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(embedding, "ROWS", {"one by one": ["batch_size=1"]})
    output = tmp_path / "embedding.json"
    assert embedding.main(f"--output {output} --network resnet10 --count 2 --seconds 1".split()) == 0
    record = json.loads(output.read_text())
    assert [row["row"] for row in record["rows"]] == ["one by one"]
    assert record["rows"][0]["resident_mib"] > 100
    assert record["tensors_mib"]["120 s"] > 10 * record["tensors_mib"]["1 s"] / 2
