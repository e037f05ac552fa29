"""The benchmarks of exported files: their rows, and what they record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from paths import ROOT

from benchmarks import one_score
from benchmarks.inference import COMPUTED, has_bfloat16
from svtoolkit.data.kaldi_dir import KaldiDir

pytest.importorskip("openvino")
pytest.importorskip("ncnn")
pytest.importorskip("sherpa_onnx")


def test_times(tmp_path: Path) -> None:
    """In a process of its own: two runtimes with threads of theirs beside all that other tests have loaded."""
    output = tmp_path / "inference.json"
    words = ["--network", "resnet10", "--threads", "1", "--repeats", "2", "--seconds", "1", "--starts", "1"]
    command = [sys.executable, "-m", "benchmarks.inference", "--output", str(output), *words]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    record = json.loads(output.read_text())
    rows = [
        ("torch", "fp32"),
        *((runtime, precision) for runtime in ("onnxruntime", "OpenVINO") for precision in ("fp32", "bf16", "int8")),
        *(("ncnn", precision) for precision in ("fp32", "bf16")),
    ]
    if has_bfloat16():  # of the processor
        rows = [rows[0], ("torch", COMPUTED), *rows[1:], ("OpenVINO", COMPUTED)]
    assert [(row["runtime"], row["precision"]) for row in record["rows"]] == rows
    assert all(row["cosine"] > 0.9 and row["milliseconds"] > 0 for row in record["rows"])
    assert record["rows"][0]["times"] == 1
    assert record["megabytes"]["int8"] < record["megabytes"]["bf16"] < record["megabytes"]["fp32"]
    assert [row["precision"] for row in record["start"]] == ["fp32", "int8"]


def test_scores(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(one_score, "FEATURES", {"wespeaker": {}})
    monkeypatch.setattr(one_score, "ROWS", one_score.ROWS[:2])
    names = [f"s{number // 3}-{number}" for number in range(24)]
    for number, name in enumerate(names):
        sound = np.random.default_rng(number).standard_normal(9000) * 0.1
        soundfile.write(tmp_path / f"{name}.wav", np.clip(sound, -1, 1), 16000)
    tables = {name: str(tmp_path / f"{name}.wav") for name in names}, {name: name.split("-")[0] for name in names}
    KaldiDir(*tables).write(tmp_path / "data")
    output = tmp_path / "one_score.json"
    words = f"--data {tmp_path / 'data'} --output {output} --network resnet10 --width 4 --speakers 2 --fitted 12"
    assert one_score.main(words.split()) == 0
    record = json.loads(output.read_text())
    assert str(tmp_path / "data") not in record["command"]
    first, second, last = record["rows"]
    assert [each["runtime"] for each in first["agreements"]] == ["onnxruntime", "openvino", "ncnn", "sherpa-onnx"]
    assert [each["runtime"] for each in second["agreements"]] == ["onnxruntime", "openvino", "ncnn"]
    assert min(each["least_cosine"] for each in (*first["agreements"][:3], *second["agreements"])) > 0.9999
    assert last["untouched"]["scores"] == 15
