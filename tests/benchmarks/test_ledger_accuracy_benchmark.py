"""Predictions beside real steps: a network through the benchmark, and its statistics recomputed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paths import ROOT

from benchmarks import ledger_accuracy
from benchmarks.ledger_accuracy import Point, rank_correlation, summarise
from svtoolkit.config import MemoryStrategyConfig, ResNetConfig


def point(predicted: int, measured: int) -> Point:
    return Point("n", "store", "fp32", 2, False, predicted, measured, 0)


def test_errors_are_summed_up() -> None:
    found = summarise([point(100, 100), point(110, 100), point(90, 100)])
    assert (found["points"], found["median_percent"], found["unsafe"]) == (3, 10.0, 1)
    assert (found["lowest_percent"], found["highest_percent"]) == (-10.0, 10.0)


def test_ranks_are_spearmans() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 400, 8000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 1, 2]) == pytest.approx(1 - 6 * (4 + 1 + 1) / (3 * 8))


def test_a_network_goes_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_accuracy, "NETWORKS", {"tiny": ResNetConfig("resnet10", base_width=4)})
    monkeypatch.setattr(ledger_accuracy, "PROFILED", ())
    tried = [MemoryStrategyConfig("store"), MemoryStrategyConfig("reversible"), MemoryStrategyConfig("stash8")]
    monkeypatch.setattr(ledger_accuracy, "strategies_tried", lambda: tried)
    monkeypatch.setattr(ledger_accuracy, "FRAMES", 24)
    output = tmp_path / "accuracy.json"
    assert ledger_accuracy.main(["--networks", "tiny", "--output", str(output)]) == 0
    record = json.loads(output.read_text())
    assert record["summary"]["memory"]["points"] == len(record["points"]) == 2 * 2 * 2 * 2
    assert record["summary"]["memory"]["percentile_95_percent"] < 1
    assert record["summary"]["memory"]["unsafe"] == 0
    assert [each["strategy"] for each in record["timings"]] == ["store", "stash8"]


def test_what_is_recorded_keeps_its_word() -> None:
    memory = json.loads((ROOT / "benchmarks" / "results" / "ledger_accuracy.json").read_text())["summary"]["memory"]
    assert memory["points"] >= 300
    assert memory["median_percent"] < 2
    assert memory["percentile_95_percent"] < 6
    assert memory["unsafe"] == 0
