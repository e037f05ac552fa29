"""The drift of the inversion: nothing in exact mode, something without, and a document and a figure of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import drift
from benchmarks.gpu.equality import relative_l2
from svtoolkit.reversible import AdditiveCoupling, ReversibleSequence

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "MAP", (2, drift.CHANNELS, 6, 7))


def test_relative_error_is_of_all_tensors_together() -> None:
    expected = [torch.tensor([3.0]), torch.tensor([[0.0, 4.0]])]
    assert relative_l2([torch.tensor([3.0]), torch.tensor([[1.0, 4.0]])], expected) == pytest.approx(1 / 5)
    assert relative_l2(expected, expected) == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_exact_mode_misses_nothing(precision: str) -> None:
    row = drift.measure_drift(8, precision, "always", seeds=1)
    assert row == drift.Drift(8, precision, "always", 0.0, 0.0)


def test_without_it_rounding_is_seen() -> None:
    row = drift.measure_drift(8, "fp32", "never", seeds=3)
    assert 1e-8 < row.reconstruction < 1e-5
    assert 0 < row.gradient < 1e-1


def test_the_error_is_that_of_the_inverse() -> None:
    """Residual functions whose inverse is known to be off: F grows by one thousandth with every call."""

    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return torch.full_like(x, 1 + self.calls / 1000)

    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x)

    sequence = ReversibleSequence([AdditiveCoupling(Growing(), Nothing())])
    sequence.exact = False
    found = drift.reconstruction_error(sequence, torch.ones(1, 4, 2, 2), "fp32")
    assert found == pytest.approx(0.001 * 0.5**0.5, rel=1e-3)  # of half the values, all of them 1


def test_from_command_to_document_and_figure(tmp_path: Path, capsys: Any) -> None:
    output, figure = tmp_path / "drift.json", tmp_path / "images" / "drift.png"
    words = ["--output", str(output), "--figure", str(figure), "--deepest", "2", "--seeds", "1"]
    assert drift.main([*words, "--network", "revnet_tiny", "--frames", "16", "--rounds", "1"]) == 0
    document = json.loads(output.read_text())
    rows = [drift.Drift(**row) for row in document["results"]]
    assert [(row.couplings, row.exact, row.precision) for row in rows] == [
        (depth, exact, precision)
        for depth in (1, 2)
        for exact in ("never", "always")
        for precision in ("fp32", "bf16", "fp16")
    ]
    assert all(row.reconstruction == row.gradient == 0 for row in rows if row.exact == "always")
    assert document["cost_of_exact_mode"]["exact"]["always"]["ratio_fastest"] > 0
    assert document["command"].startswith("python -m benchmarks.drift --output ")
    assert figure.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "| 2 | " in printed
    assert "exact mode, revnet_tiny, fp32:" in printed


def test_zero_is_drawn_on_the_floor() -> None:
    rows = [
        drift.Drift(depth, "fp32", exact, error, 2 * error)
        for depth in (1, 2)
        for exact, error in (("never", 1e-6 * depth), ("always", 0.0))
    ]
    figure = drift.draw(rows)
    first, second = figure.axes
    assert (first.get_xscale(), first.get_yscale()) == ("log", "log")
    never, always = first.lines
    assert list(never.get_ydata()) == [1e-6, 2e-6]
    floor = always.get_ydata()[0]
    assert floor < 1e-7
    assert first.get_ylim()[0] < floor
    labels = {label.get_position()[1]: label.get_text() for label in first.get_yticklabels()}
    assert labels[floor] == "0"
    assert labels[1e-6] == "1e-6"
    assert list(second.lines[0].get_ydata()) == [2e-6, 4e-6]
    assert second.lines[1].get_ydata()[0] == floor
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fp32", "fp32, exact"]
