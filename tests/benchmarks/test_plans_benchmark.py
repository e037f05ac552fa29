"""The benchmark of plans on a small network: what is allowed, what is found, and its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import plans
from svtoolkit.models import build_model


def test_more_time_takes_less_memory_and_the_table_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "build_model", lambda name, num_bins: build_model(name, base_width=4, num_bins=num_bins))
    output = tmp_path / "plans.json"
    assert plans.main(["--networks", "resnet10", "--times", "1", "1.5", "--output", str(output)]) == 0
    (run,) = json.loads(output.read_text())["runs"]
    found = {(row["way"], row["allowed"]): row for row in run["rows"]}
    assert set(found) == {(way, times) for way in plans.WAYS for times in (1.0, 1.5)}
    assert found["exact", 1.5]["gib"] < found["exact", 1.0]["gib"]
    assert found["host, 8 bits", 1.5]["gib"] <= found["host", 1.5]["gib"] <= found["exact", 1.5]["gib"]
    assert all(row["times"] <= row["allowed"] for row in found.values())
    assert f"| resnet10 | {found['exact', 1.0]['gib']:.4f} | " in capsys.readouterr().out
