"""The benchmark of low rank: every kind and share of the variance, resumed, and products at a quarter of their size."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks import low_rank

torch.set_num_threads(1)


def test_runs_products_and_figure(tmp_path: Path, speech: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(low_rank, "CROPS", (4, 40))
    monkeypatch.setattr(low_rank, "PRODUCTS", {"small": (16, 64)})
    monkeypatch.setattr(low_rank, "VARIANCES", (0.5,))
    evaluated = tmp_path / "data"
    evaluated.mkdir()
    for path in speech.iterdir():
        (evaluated / path.name).write_bytes(path.read_bytes())
    (evaluated / "trials").write_text("spk0-utt0 spk0-utt1 target\nspk0-utt0 spk1-utt1 nontarget\n")
    output, figure = tmp_path / "low_rank.json", tmp_path / "low_rank.svg"
    words = f"--train {speech} --trials {evaluated} --root . --output {output} --seeds 1 --steps 2 1 --figure {figure}"
    assert low_rank.main(words.split()) == 0
    record = json.loads(output.read_text())
    assert [run["kind"] for run in record["runs"]] == ["none", "l2", "trace_norm"]
    for run in record["runs"]:
        whole, cut = run["stages"]
        assert whole["parameters"] == run["parameters"] > cut["parameters"]
    assert [(row["batch"], row["rank"]) for row in record["products"]] == [(batch, 3) for batch in (1, 2, 3, 4)]
    assert "trace norm" in figure.read_text()
    record["runs"][0]["stages"][0]["eer"] = 77.0
    output.write_text(json.dumps(record))
    capsys.readouterr()
    assert low_rank.main(words.split()) == 0  # nothing is run again
    assert "'eer': 77.0" in capsys.readouterr().out
