"""svt reversibility: the table, the data and the figures of a small network, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch

from svtoolkit.cli import main

torch.set_num_threads(1)

SMALL = ["reversibility", "model=revnext_tiny", "frames=12", "num_bins=16", "precisions=[fp32]", "depths=[4,8]"]
SMALL += ["slopes=[0.1,0.5]"]


def test_table_data_and_figures(tmp_path, capsys):
    assert main([*SMALL, f"out={tmp_path / 'new'}"]) == 0
    shown = capsys.readouterr().out
    assert "revnext_tiny: signal to noise" in shown
    assert shown.count("fp32") == 2
    assert "exact     exact" in shown
    assert main([*SMALL, "format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "new" / "reversibility.json").read_text(encoding="utf-8"))
    assert {row["design"] for row in found["chains"]} == {"layerwise", "hybrid"}
    assert len(found["chains"]) == 8
    assert found["model"]["slope"] == 0.1
    for name in ("norm", "leaky_relu", "layers", "depth"):
        assert (tmp_path / "new" / f"{name}.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")
        assert (tmp_path / "new" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("model=resnet34", "svt reversibility is of reversible networks, and this is none"),
        ("format=xml", "format is 'xml', expected table or json"),
        ("precisions=[fp8]", "precisions has 'fp8', expected some of fp64, fp32, bf16, fp16"),
        ("depths=[6]", "depths has 6, expected multiples of 4"),
        ("slopes=[0.0]", "slopes has 0.0, expected numbers above 0, 1 at most"),
        ("frames=0", "frames is 0, expected 1 or more"),
    ],
)
def test_what_is_refused(word, message, capsys):
    assert main([*SMALL, word]) != 0
    assert message in capsys.readouterr().err
