"""The deepest and the strongest networks: counted in small, and as the page shows them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from paths import ROOT

from benchmarks import extremes, extremes_steps
from benchmarks.extremes import BEGIN, Line, deepened
from benchmarks.extremes_page import format_page
from benchmarks.extremes_steps import Way, profile, way
from benchmarks.machine import END
from benchmarks.published import TOTAL_BATCH
from svtoolkit.models import build_model
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.cards import CARDS, GIB

torch.set_num_threads(1)

RECORD = json.loads((ROOT / "benchmarks" / "results" / "extremes.json").read_text(encoding="utf-8"))
SMALL = replace(NETWORKS["revnet_tiny"], arguments=NETWORKS["revnet_tiny"].arguments | {"blocks": (1, 1, 1, 1)})


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[Way]:
    """One small reversible network in short crops, two ways of a step."""
    monkeypatch.setitem(NETWORKS.rows, "revnet_small", SMALL)
    monkeypatch.setattr(extremes_steps, "FRAMES", 24)
    monkeypatch.setattr(extremes_steps, "CLASSES", 2000)
    return [way("store", "fp32", "sgd"), way("reversible", "fp32", "sgd_8bit")]


def test_the_page_shows_what_was_counted() -> None:
    page = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0] == format_page(RECORD)


def test_depth_grows_on_a_straight_line() -> None:
    assert len(RECORD["deepest"]) == 3 * 4 * len(extremes.GPUS)
    assert all(abs(row["line_off"]) < 0.001 for row in RECORD["deepest"])
    line = Line((4, 8), (10.0, 14.0))
    assert (line.at(20), line.where(26.5), line.where(3.0)) == (26.0, 20, 0)


def test_a_micro_batch_fits_and_twice_as_many_do_not(few: list[Way]) -> None:
    steps = profile("revnet_small", few)
    stored, reversible = (steps[each] for each in few)
    needed = stored.needed(32, CARDS["2080ti"])
    card = replace(CARDS["2080ti"], gib=(needed + 1e5) / GIB)
    assert stored.micro_batch(card) == 32
    assert stored.needed(64, card) > card.memory_bytes >= stored.needed(32, card) > max(stored.peaks(32))
    assert reversible.micro_batch(card) >= 64
    assert stored.micro_batch(replace(card, gib=0.455)) == 0
    assert stored.seconds(32, card) < reversible.seconds(32, card)
    assert stored.parameters == sum(weight.numel() for weight in build_model("revnet_small").parameters())


def test_the_quickest_way_that_fits_is_taken(few: list[Way], monkeypatch: pytest.MonkeyPatch) -> None:
    steps = profile("revnet_small", few)
    row = extremes._quickest("revnet_small", steps, "2080ti")
    assert (row["way"], row["micro_batch"], row["times_stored"]) == ("store, fp32, sgd", TOTAL_BATCH, 1.0)
    small = replace(CARDS["2080ti"], gib=(steps[few[0]].needed(8, CARDS["2080ti"]) + 1e4) / GIB)
    assert steps[few[1]].needed(16, small) < small.memory_bytes
    monkeypatch.setitem(CARDS, "2080ti", small)
    row = extremes._quickest("revnet_small", steps, "2080ti")
    assert row["way"] == "reversible, fp32, sgd_8bit"
    assert row["times_stored"] > 1
    assert row["stored_micro_batch"] == 8
    monkeypatch.setitem(CARDS, "2080ti", replace(small, gib=0.455))
    row = extremes._quickest("revnet_small", steps, "2080ti")
    assert row["way"] is None
    assert row["least_gib"] > 0.45


def test_a_deeper_network_is_there_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    with deepened("revnet57", 7) as name:
        assert NETWORKS[name].arguments["blocks"] == (2, 3, 7, 3)
    assert name not in NETWORKS
    ways = [way("store", "fp32", "sgd"), way("reversible", "fp16", "sgd_8bit")]
    assert [each.title for each in ways] == ["store, fp32, sgd", "reversible, 16 bits, sgd_8bit"]


def test_the_waterfall_adds_up(few: list[Way]) -> None:
    first, second = extremes.waterfall("revnet_small", few)
    for row in (first, second):
        assert sum(row["mib"].values()) == pytest.approx(row["peak_mib"], abs=0.5)
    assert second["saved_mib"] == pytest.approx(first["peak_mib"] - second["peak_mib"], abs=0.11)
    assert second["mib"]["optimizer state"] < 0.3 * first["mib"]["optimizer state"]


def test_the_command(few: list[Way], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extremes, "DEEP", {"RevNet": "revnet_small"})
    monkeypatch.setattr(extremes, "deep_ways", lambda family: few)
    monkeypatch.setattr(extremes, "ways_of", lambda network: few)
    monkeypatch.setattr(extremes, "WATERFALLS", {"revnet_small": few[:1]})
    monkeypatch.setattr(extremes, "DEPTHS", (1, 2))
    monkeypatch.setattr(extremes, "CHECKED_DEPTH", 3)
    page, output = tmp_path / "page.md", tmp_path / "extremes.json"
    page.write_text(f"{BEGIN}{END}\n")
    words = ["--output", str(output), "--page", str(page), "--networks", "revnet_small"]
    assert extremes.main(words) == 0
    record = json.loads(output.read_text())
    assert [len(record[part]) for part in ("waterfall", "deepest", "strongest")] == [1, 6, 3]
    assert all(abs(row["line_off"]) < 0.01 for row in record["deepest"])
    deep = {(row["gpu"], row["way"]): row["blocks"] for row in record["deepest"]}
    for gpu in extremes.GPUS:
        assert deep[gpu, few[1].title] > deep[gpu, few[0].title]
    assert page.read_text() == BEGIN + format_page(record) + END + "\n"
    monkeypatch.setattr(extremes, "deepest", lambda family: pytest.fail("it was not asked for"))
    assert extremes.main([*words, "--tables", "waterfall"]) == 0
    again = json.loads(output.read_text())
    assert {part: again[part] for part in extremes.TABLES} == {part: record[part] for part in extremes.TABLES}
    assert again["commands"]["waterfall"].endswith("--tables waterfall")
    assert again["commands"]["deepest"] == record["command"]


def test_ways_keep_ever_less() -> None:
    titles = [each.title for each in extremes.ways_of("revnet57")]
    assert titles[:4] == [
        "store, fp32, sgd",
        "store, 16 bits, sgd",
        "reversible, fp32, sgd",
        "reversible, 16 bits, sgd",
    ]
    assert "reversible, 16 bits, sgd_8bit" in titles
    assert not any(title.startswith("reversible") for title in (each.title for each in extremes.ways_of("resnet34")))
    plans = [each.title for each in extremes.ways_of("redimnet2_b6") if each.memory.strategy == "planned"]
    assert plans[1:3] == ["planned at 1.2 times, 16 bits, sgd", "planned at 1.35 times, fp32, sgd"]
