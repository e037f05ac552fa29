"""The benchmark of memory=stash8: a row a network, a run a seed and strategy, errors that are those of rounding."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks import stash8

torch.set_num_threads(1)


def test_rows_and_record(tmp_path: Path, speech: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(stash8, "CROPS", (4, 16))
    monkeypatch.setattr(stash8, "AFTER_TRAINING", ("resnet10",))
    evaluated = tmp_path / "data"
    evaluated.mkdir()
    for path in speech.iterdir():
        (evaluated / path.name).write_bytes(path.read_bytes())
    (evaluated / "trials").write_text("spk0-utt0 spk0-utt1 target\nspk0-utt0 spk1-utt1 nontarget\n")
    output = tmp_path / "stash8.json"
    words = f"--train {speech} --trials {evaluated} --root . --output {output} --networks xvector".split()
    assert stash8.main([*words, *"--batch 2 --frames 30 --seeds 1 --steps 2".split()]) == 0
    record = json.loads(output.read_text())
    assert [row["network"] for row in record["errors"]] == ["xvector", "resnet10, trained"]
    assert [run["strategy"] for run in record["runs"]] == ["store", "stash8"]
    row = record["errors"][0]
    assert 0 < row["float64"] < 1e-4 < row["by_utterance"] < row["in_forward"] < 1
    assert "| xvector |" in capsys.readouterr().out
