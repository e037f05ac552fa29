"""The paper's tables of memory: against the published files, the page, and gradients of the reversal by the book."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from paths import ROOT, SHARED

from benchmarks import memory_ledger, paper_tables, training_step
from benchmarks.machine import END
from benchmarks.paper_tables import BEGIN, figures_of, format_page
from benchmarks.published import PUBLISHED, TABLE_I, TABLE_VII, TOTAL_BATCH, optimizer_of
from benchmarks.textbook import invert_by_the_book
from benchmarks.training_step import STORE, build_network, is_reversible

torch.set_num_threads(1)

RESULTS = ROOT / "benchmarks" / "results"
MEMORY = json.loads((RESULTS / "memory.json").read_text(encoding="utf-8"))
RECORD = json.loads((RESULTS / "paper_tables.json").read_text(encoding="utf-8"))
FIGURES = figures_of(MEMORY, RECORD["by_the_book"])
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


def test_the_page_shows_what_the_files_say() -> None:
    assert PAGE.split(BEGIN)[1].split(END)[0] == format_page(FIGURES)
    assert [vars(figure) for figure in FIGURES] == RECORD["figures"]


def test_every_published_figure_is_there_once_with_its_deviation_and_a_reason() -> None:
    reversible = sum(is_reversible(name) for name in PUBLISHED)
    stored = len(PUBLISHED) - reversible
    assert len(FIGURES) == 4 * len(TABLE_I) + 2 * stored + 5 * reversible + len(TABLE_VII)
    assert len({(figure.table, figure.network, figure.what) for figure in FIGURES}) == len(FIGURES)
    for figure in FIGURES:
        assert figure.deviation == pytest.approx(figure.predicted / figure.published - 1, abs=5e-3)
        assert (figure.by_the_book is None) == (figure.book_deviation is None)
        assert (figure.by_the_book is None) == (figure.table == "I" or not is_reversible(figure.network))
        assert figure.reason in paper_tables.REASONS


@pytest.mark.skipif(not (SHARED / "spec" / "paper_results.csv").is_file(), reason="the published table is not at hand")
def test_published_compressions_are_quotients_of_published_figures() -> None:
    with (SHARED / "spec" / "paper_results.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["compression"] and not row["optimizer"].endswith("8bit")]
    ours = {figure.network: figure.published for figure in FIGURES if figure.what == paper_tables.COMPRESSION}
    assert len(rows) == len(ours)
    for row in rows:  # some are cut off, not rounded
        assert ours[row["system"].lower().replace("-", "_")] == pytest.approx(float(row["compression"]), abs=8e-3)


def test_what_the_reasons_say_of_the_published_figures_is_so() -> None:
    for name, (gpus, _) in TABLE_VII.items():
        assert gpus == -(-TOTAL_BATCH // PUBLISHED[name].batch)
    whole = sum(value for part, value in TABLE_I["df_resnet56"].items() if part != "batch")
    assert f"sum, {whole:.3f}," in paper_tables.REASONS["whole"]
    assert f"16 times {whole / 16:.3f}" in paper_tables.REASONS["whole"]
    df = [published for name, published in PUBLISHED.items() if name.startswith("df_resnet")]
    assert all(published.gb * published.batch > 11 for published in df)
    assert PUBLISHED["revnet230"].gb == pytest.approx(PUBLISHED["revnet140"].gb * 4 / 3)
    for name, published in PUBLISHED.items():
        if published.eight_bit_gb is not None:
            parameters = MEMORY["parts"]["ledger"][name]["parameters"]
            state = parameters * (8 if optimizer_of(name) == "adamw" else 4)
            assert (published.gb - published.eight_bit_gb) * published.batch * 1e9 > state, name


def test_the_book_explains_the_published_memory_of_reversible_networks() -> None:
    """Within 16 % wherever two digits are published, but for the one figure that is called an outlier."""
    far = {
        figure.network
        for figure in FIGURES
        if figure.what == paper_tables.GB and is_reversible(figure.network) and abs(figure.book_deviation) > 0.16
    }
    assert far == {"revnet230"}


@pytest.mark.parametrize("name", ["revnet_tiny"])
def test_gradients_by_the_book_are_those_of_stored_activations(name: str) -> None:
    network, features = build_network(name, STORE, exact=False).double(), torch.randn(2, 16, 80).double()

    def gradients() -> list[torch.Tensor]:
        network.zero_grad()
        network(features).square().mean().backward()
        return [weight.grad.clone() for weight in network.parameters()]

    stored = gradients()
    invert_by_the_book(network)
    for ours, theirs in zip(gradients(), stored, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_the_command_measures_writes_and_fills_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr(
        paper_tables, "measure_book", lambda names, budget: measured.append(budget) or RECORD["by_the_book"]
    )
    page, output = tmp_path / "page.md", tmp_path / "tables.json"
    page.write_text(f"before\n{BEGIN}old\n{END}\nafter\n")
    assert paper_tables.main(["--output", str(output), "--page", str(page)]) == 0
    assert measured == [9.2]
    assert page.read_text() == f"before\n{BEGIN}{format_page(FIGURES)}{END}\nafter\n"
    assert json.loads(output.read_text())["figures"] == RECORD["figures"]
    output.unlink()
    assert paper_tables.main(["--page", str(page)]) == 0
    assert len(measured) == 1
    assert not output.exists()


def test_the_book_is_measured_as_a_step_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (paper_tables, memory_ledger, training_step):
        monkeypatch.setattr(module, "CLASSES", 100)
    inverted = paper_tables.measure_book(["revnet_tiny"], 2.0)["revnet_tiny"]
    monkeypatch.setattr(paper_tables, "invert_by_the_book", lambda network: None)
    stored = paper_tables.measure_book(["revnet_tiny"], 2.0)["revnet_tiny"]
    expected = memory_ledger.step_memory("revnet_tiny", STORE, "sgd")
    assert stored["gib_per_utterance"] == pytest.approx(expected.bytes_per_utterance / 2**30, rel=0.05)
    assert stored["largest_batch"] == pytest.approx(expected.largest_batch(2.0 * 2**30), rel=0.05)
    assert inverted["gib_per_utterance"] < 0.7 * stored["gib_per_utterance"]
    assert 0 <= inverted["largest_batch_8bit"] - inverted["largest_batch"] <= 2
