"""Figures of memory: what is drawn is what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import memory_figures
from benchmarks.memory_ledger import GIB
from benchmarks.training_step import CHECKPOINT, REVERSIBLE, STORE
from svtoolkit.memory.step_report import KINDS


def row(network: str, peer: str | None, published: float | None, **gib: float) -> dict[str, Any]:
    return {"network": network, "peer": peer, "published_gb_per_utterance": published, "gib_per_utterance": gib}


ROWS = [
    row("resnet34", None, 0.06, store=0.056, checkpoint=0.021),
    row("revnet57", "resnet34", 0.03, store=0.07, checkpoint=0.02, reversible=0.0104),
]


def step(batch: int, optimizer: str, **at_peak: int) -> dict[str, Any]:
    kinds = dict.fromkeys(KINDS, 0) | {kind: size * GIB for kind, size in at_peak.items()}
    found = {"strategy": STORE, "optimizer": optimizer, "batch": batch, "at_peak": kinds}
    return found | {"peak_bytes": sum(kinds.values())}


BREAKDOWN = {
    "resnet34": {"rows": [step(16, "sgd", activations=9), step(64, "sgd", activations=3, weights=1, input=1)]},
    "df_revnet89": {"rows": [step(64, "adamw_8bit", activations=1)]},
}
TIMELINE = {
    "batch": 64,
    "live_mib": {
        STORE: {"forward": [0, 512, 1024], "backward": [2048, 1024], "optimizer": [512]},
        REVERSIBLE: {"forward": [0, 256], "backward": [512], "optimizer": [512]},
    },
}


@pytest.mark.parametrize(
    ("network", "title"),
    [
        ("resnet34", "ResNet34"),
        ("revnet57", "RevNet57"),
        ("df_resnet233", "DF-ResNet233"),
        ("df_revnet89", "DF-RevNet89"),
        ("revnet_tiny", "revnet_tiny"),
    ],
)
def test_names_are_those_of_the_paper(network: str, title: str) -> None:
    assert memory_figures.title_of(network) == title


def test_marks_stand_where_the_figures_are() -> None:
    axes = memory_figures.memory_per_utterance(ROWS).axes[0]
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ResNet34", "RevNet57"]
    marks = {
        (line.get_marker(), float(line.get_xdata()[0]), int(line.get_ydata()[0]))
        for line in axes.lines
        if line.get_marker() in "osDx"
    }
    assert marks == {
        ("o", 0.056, 0), ("s", 0.021, 0), ("x", 0.06, 0),
        ("o", 0.07, 1), ("s", 0.02, 1), ("D", 0.0104, 1), ("x", 0.03, 1),
    }  # fmt: skip
    low, high = axes.get_xlim()
    assert low < 0.0104 < 0.07 < high


def test_bars_add_up_to_the_peak() -> None:
    first, second = memory_figures.breakdown(BREAKDOWN).axes
    ends = [max(bars[0].get_x() + bars[0].get_width() for bars in axes.containers) for axes in (first, second)]
    assert ends == [5.0, 1.0]
    widths = [bars[0].get_width() for bars in first.containers]
    assert widths == [3.0, 0.0, 1.0, 0.0, 0.0, 1.0]  # the input is other
    assert [text.get_text() for text in (*first.texts, *second.texts)] == ["5.00", "1.00"]
    labels = [label.get_text() for axes in (first, second) for label in axes.get_yticklabels()]
    assert labels == ["ResNet34\nstored, SGD", "DF-RevNet89\nstored, 8-bit AdamW"]  # the batch of 16 has no bar


def test_a_phase_has_a_width_of_one() -> None:
    axes = memory_figures.timeline("revnet57", TIMELINE).axes[0]
    stored = axes.lines[0]
    assert list(stored.get_xdata()) == [0.0, 0.5, 1.0, 1.0, 2.0, 2.0]
    assert list(stored.get_ydata()) == [0.0, 0.5, 1.0, 2.0, 1.0, 0.5]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "stored, peak 2.00 GiB",
        "reversible, peak 0.50 GiB",
    ]


def test_the_command_draws_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "memory.json"
    parts = {"breakdown": BREAKDOWN, "timeline": {"revnet57": TIMELINE, "revnet46": TIMELINE}}
    path.write_text(json.dumps({"parts": parts, "summary": {"rows": ROWS}}))
    assert memory_figures.main(["--input", str(path), "--folder", str(tmp_path / "images")]) == 0
    names = {"memory_per_utterance.png", "memory_breakdown.png", "memory_timeline.png", "memory_timeline_revnet46.png"}
    assert {file.name for file in (tmp_path / "images").iterdir()} == names
    assert all((tmp_path / "images" / name).read_bytes().startswith(b"\x89PNG") for name in names)
    assert capsys.readouterr().out.count(".png") == 4
    path.write_text(json.dumps({"parts": {}, "summary": {}}))
    assert memory_figures.figures_of(json.loads(path.read_text())) == {}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "there is no such file"), ("{", "is no JSON file"), ("[]", "is not what benchmarks.memory wrote")],
)
def test_a_file_that_cannot_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, sentence: str
) -> None:
    path = tmp_path / "memory.json"
    if content is not None:
        path.write_text(content)
    assert memory_figures.main(["--input", str(path), "--folder", str(tmp_path)]) == 1
    assert f"error: {path}: {sentence}" in capsys.readouterr().err


def test_colours_and_marks_are_of_every_strategy() -> None:
    for table in (memory_figures.COLOUR_OF, memory_figures.MARKER_OF, memory_figures.LABEL_OF):
        assert table.keys() == {STORE, CHECKPOINT, REVERSIBLE}
        assert len(set(table.values())) == 3
