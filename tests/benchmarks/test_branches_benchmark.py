"""The benchmark of RepVGGs with and without branches, on narrow ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from network_material import NARROW

from benchmarks import branches
from svtoolkit.models.registry import NETWORKS

pytest.importorskip("openvino")
pytest.importorskip("ncnn")


@pytest.mark.parametrize(("name", "exported"), [("repvgg_b1g2", "one"), ("repvgg_tiny_rsbb_a0", "branches")])
def test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, exported: str) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # those of the other tests stay
    row = NETWORKS.rows[name]
    monkeypatch.setitem(NETWORKS.rows, name, replace(row, arguments={**row.arguments, **NARROW[name]}))
    output = tmp_path / "branches.json"
    words = ["--networks", name, "--threads", "1", "--repeats", "1", "--seconds", "0.5", "--output", str(output)]
    assert branches.main(words) == 0
    rows = json.loads(output.read_text())["rows"]
    assert [each["way"] for each in rows] == [
        "torch fp32", "onnxruntime fp32", "OpenVINO fp32", "ncnn fp32", "onnxruntime int8", "OpenVINO int8",
    ]  # fmt: skip
    assert {each["export"] for each in rows} == {exported}
    assert (rows[0]["megabytes"][0] > rows[0]["megabytes"][1]) == (exported == "one")
    assert all(max(each["difference"]) < (1e-4 if "fp32" in each["way"] else 0.5) for each in rows)
    assert rows[0]["difference"][0] == 0 < rows[0]["difference"][1]
