"""The benchmarks of memory=stash8: a row a network, errors that are those of rounding, a run a seed and kind."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks import stash8, stash8_learning

torch.set_num_threads(1)


def test_rows_and_record(tmp_path: Path, speech: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(stash8, "CROPS", (4, 16))
    monkeypatch.setattr(stash8, "STEPS", 1)
    monkeypatch.setattr(stash8, "AFTER_TRAINING", ("resnet10",))
    output = tmp_path / "stash8.json"
    words = f"--train {speech} --root . --output {output} --networks xvector --batch 2 --frames 30".split()
    assert stash8.main(words) == 0
    record = json.loads(output.read_text())
    assert [row["network"] for row in record["errors"]] == ["xvector", "resnet10, trained"]
    row = record["errors"][0]
    assert 0 < row["float64"] < 1e-4 < row["by_utterance"] < row["in_forward"] < 1
    assert "| xvector |" in capsys.readouterr().out


def test_runs_are_resumed(tmp_path: Path, speech: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(stash8_learning, "CROPS", (4, 16))
    evaluated = tmp_path / "data"
    evaluated.mkdir()
    for path in speech.iterdir():
        (evaluated / path.name).write_bytes(path.read_bytes())
    (evaluated / "trials").write_text("spk0-utt0 spk0-utt1 target\nspk0-utt0 spk1-utt1 nontarget\n")
    output = tmp_path / "learning.json"
    words = f"--train {speech} --trials {evaluated} --root . --output {output} --seeds 1 --steps 1".split()
    assert stash8_learning.main(words) == 0
    record = json.loads(output.read_text())
    assert [run["kind"] for run in record["runs"]] == ["store", "stash8", "nudged"]
    record["runs"] = [{"seed": 1, "kind": "store", "loss": 1.0, "eer": 77.0}, *record["runs"][1:2]]
    output.write_text(json.dumps(record))
    capsys.readouterr()
    assert stash8_learning.main(words) == 0
    assert "| 1 | store | 1.000 | 77.00 |" in capsys.readouterr().out


def test_runs_are_compared_seed_by_seed() -> None:
    rates = {"store": [4.0, 6.0], "stash8": [5.0, 9.0], "nudged": [4.0]}
    runs = [{"seed": seed, "kind": kind, "eer": rate} for kind in rates for seed, rate in enumerate(rates[kind])]
    store, eight_bits, nudged = stash8_learning.compare(runs)
    assert store == {"kind": "store", "seeds": 2, "eer_mean": 5.0, "eer_std": 1.414}
    assert (eight_bits["difference_mean"], eight_bits["difference_std"]) == (2.0, 1.414)
    assert (nudged["difference_mean"], nudged["difference_std"]) == (0.0, None)
