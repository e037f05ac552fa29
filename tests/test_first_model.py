"""The notebook of docs: its cells run in their order, on less data, and no output is stored in it."""

from __future__ import annotations

import csv
import json
from typing import Any

import matplotlib
import pytest
from espeak_material import needs_espeak
from paths import ROOT

NOTEBOOK = ROOT / "docs" / "first_model.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
SMALL = {
    "CORPUS": {"speakers": 8, "eval_speakers": 2, "utterances_per_speaker": 3, "sample_rate": 8000},
    "TRAINING": {
        "experiment": "mini", "trainer.epochs": 2, "trainer.batch_size": 4, "trainer.threads": 1, "data.speeds": [1.0],
        "data.num_workers": 0, "data.crop_frames": 40, "features.num_bins": 24, "features.sample_rate": 8000,
        "model.base_width": 4, "model.embedding_dim": 16, "validation.speakers": 2, "trainer.device": "cpu",
    },
}  # fmt: skip


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_no_output_is_stored():
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CELLS)


def test_one_cell_has_the_parameters():
    (cell,) = (cell for cell in CELLS if cell["metadata"].get("tags") == ["parameters"])
    names: dict[str, Any] = {}
    exec(source(cell), names)
    assert set(SMALL) <= set(names)


@needs_espeak
def test_the_cells_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names: dict[str, Any] = {}
    for number, cell in enumerate(CELLS):
        exec(compile(source(cell), f"{NOTEBOOK.name}, cell {number}", "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            names.update(SMALL)
    said = capsys.readouterr().out
    assert "6 recordings to try the network on" in said
    assert "(16,) float32" in said
    assert said.count("the same speaker: score") == said.count("another speaker: score") == 1
    left, right = names["figure"].axes
    with (tmp_path / "exp" / "first_model" / "run" / "logs" / "epochs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(left.lines[0].get_ydata()) == [float(row["loss"]) for row in rows]
    assert list(right.lines[0].get_ydata()) == pytest.approx([100 * float(row["validation_eer"]) for row in rows])
    assert len(rows) == 2
    names["plt"].close("all")
