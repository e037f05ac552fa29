"""docs/out_of_memory.md: its commands run, and its output is what they print."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

from svtoolkit.cli import main
from svtoolkit.planning import profiles

PAGE = (ROOT / "docs" / "out_of_memory.md").read_text(encoding="utf-8")
SHORTER = ["model=resnet10", "model.base_width=4", "frames=24", "num_bins=16", "num_classes=50"]
"""Put behind the words of a command: the same figures of a network that is profiled in no time."""


def example(number: int) -> tuple[list[str], str]:
    """Words of a command on the page, and the output that stands below it."""
    command, output = re.findall(r"\n    svt (plan .*)\n\n((?:(?:    .*)?\n)+)", PAGE)[number]
    return command.split(), re.sub("^    ", "", output, flags=re.MULTILINE).rstrip()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(profiles, "count_cores", lambda: 1)


def without_figures(text: str) -> list[str]:
    """Lines with their figures, lengths of names and strategies left out."""
    text = re.sub(r"memory=\S+( memory\.\S+)*", "memory=S", text)
    text = re.sub(r"(model=\w+( model\.\w+=\w+)?|data\.crop_frames=\d+ ?|features\.num_bins=\d+ ?|resnet\d+)", "", text)
    text = re.sub(r"(precision|optim|micro_batch)=\w+", r"\1", text)
    return [re.sub(r"[ \d.]+", " ", line).strip() for line in text.splitlines()]


def test_the_plan_looks_as_on_the_page(capsys):
    words, shown = example(0)
    assert main([*words, *SHORTER]) == 0
    printed = capsys.readouterr().out.rstrip()
    assert without_figures(printed) == without_figures(shown)
    assert len(shown.splitlines()) == 14


def test_the_refusal_reads_as_on_the_page(capsys):
    words, shown = example(1)
    assert main([*words, *SHORTER, "gib=0.1501"]) == 1
    said = capsys.readouterr().err
    parts = re.split(r"[\d.]+|by .*?;|resnet\d+", shown)
    assert len(parts) > 4
    for part in parts:
        assert part in said


def test_every_key_that_it_names_is_one():
    from svtoolkit.composition.keys import key_types

    keys = {*key_types("train"), *key_types("plan")}
    named = set(re.findall(r"`((?:trainer|memory)\.[a-z_]+)", PAGE))
    assert len(named) >= 4
    assert named <= keys
