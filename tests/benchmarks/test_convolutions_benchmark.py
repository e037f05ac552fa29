"""The benchmark of convolutions alone: its rows, and how they add up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

pytest.importorskip("openvino")
pytest.importorskip("ncnn")

from benchmarks import convolutions
from benchmarks.inference import has_bfloat16

SYSTEMS = ["torch fp32", "onnxruntime fp32", "onnxruntime int8", "OpenVINO fp32", "OpenVINO int8", "ncnn fp32"]


def test_rows(tmp_path: Path) -> None:
    output = tmp_path / "convolutions.json"
    script = (
        "import sys; from benchmarks import convolutions; convolutions.STAGES = ((4, 8, 12, 2),); "
        "sys.exit(convolutions.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, "--output", str(output), "--repeats", "2"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    record = json.loads(output.read_text())
    products = [row for row in record["rows"] if row["what"] == "product"]
    kinds = ["fp32", "bf16"] if has_bfloat16() else ["fp32"]
    assert [row.get("precision") for row in products] == [None, *kinds]
    rows = record["rows"][len(products) :]
    assert [f"{row['runtime']} {row['precision']}" for row in rows] == SYSTEMS
    assert {row["what"] for row in rows} == {"4 x 8 x 12"}
    assert record["whole"]["torch fp32"] == 1
    assert list(record["whole"]) == SYSTEMS


def test_stages_count_as_often_as_the_network_has_them() -> None:
    rows = [
        {"what": what, "runtime": runtime, "precision": "fp32", "milliseconds": time}
        for what, runtime, time in (
            ("4 x 8 x 12", "torch", 6.0), ("8 x 4 x 6", "torch", 2.0),
            ("4 x 8 x 12", "OpenVINO", 3.0), ("8 x 4 x 6", "OpenVINO", 4.0),
        )
    ]  # fmt: skip
    stages = ((4, 8, 12, 3), (8, 4, 6, 1))
    assert convolutions.whole_gains(rows, stages) == {"torch fp32": 1, "OpenVINO fp32": round(20 / 13, 2)}
