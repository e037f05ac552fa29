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
    assert run["bins"] == 80
    assert found["exact", 1.5]["gib"] < found["exact", 1.0]["gib"]
    assert found["host, 8 bits", 1.5]["gib"] <= found["host", 1.5]["gib"] <= found["exact", 1.5]["gib"]
    assert all(row["times"] <= row["allowed"] for row in found.values())
    assert f"| resnet10 | 80 | {found['exact', 1.0]['gib']:.4f} | " in capsys.readouterr().out


def test_a_bound_is_below_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = ((1, 2, 2, None), (2, 2, 1, 8))
    monkeypatch.setattr(
        plans, "build_model", lambda name, num_bins: build_model(name, channels=4, stages=stages, num_bins=num_bins)
    )
    run = plans.find_plans("redimnet", (1.0, 1.5, 2.0), 24)
    found = {(row["way"], row["allowed"]): row for row in run["rows"]}
    for allowed in (1.0, 1.5, 2.0):
        bound = found[plans.BOUND, allowed]
        assert bound["times"] <= allowed
        assert 0 < bound["gib"] < found["exact", allowed]["gib"]
    assert found[plans.BOUND, 2.0]["gib"] < found[plans.BOUND, 1.0]["gib"]
    assert "| redimnet | 24 | " in plans.format_table([run])
