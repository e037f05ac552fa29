"""The table of memory strategies: every row, ratios against stored activations, and a line through the depths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import strategies
from benchmarks.strategies import Depth, fit, measure_depth

torch.set_num_threads(1)


def test_a_line_through_the_depths() -> None:
    found = fit([Depth(2, 3.0), Depth(8, 5.0), Depth(32, 7.0)])
    assert found == pytest.approx({"intercept": 2, "slope": 1, "furthest": 0})


def test_recursion_keeps_few_inputs() -> None:
    small, large = (measure_depth(blocks, size=12).inputs for blocks in (4, 16))
    assert small < large < 6


def test_rows_and_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(strategies, "DEPTHS", (2, 4))
    monkeypatch.setattr(strategies, "FRAMES", 24)
    monkeypatch.setattr(strategies, "BATCH", 2)
    tried = ("store", "recompute_norm", "checkpoint, recursive")
    monkeypatch.setattr(strategies, "STRATEGIES", {name: strategies.STRATEGIES[name] for name in tried})
    output = tmp_path / "strategies.json"
    assert strategies.main(f"--networks resnet10 --rounds 1 --batch 1 --output {output}".split()) == 0
    record = json.loads(output.read_text())
    assert [row["strategy"] for row in record["costs"]] == list(tried)
    by_name = {row["strategy"]: row for row in record["costs"]}
    assert by_name["store"]["share_of_stored"] == by_name["store"]["times_stored"] == 1
    assert by_name["recompute_norm"]["share_of_stored"] < 1
    assert [row["blocks"] for row in record["recursive"]["depths"]] == [2, 4]
    assert "| resnet10 | checkpoint, recursive |" in capsys.readouterr().out
