"""Tables I, V, VI and VII of Liu & Qian, figure by figure beside what the ledger predicts.

    python -m benchmarks.paper_tables --output benchmarks/results/paper_tables.json --page docs/paper.md

What it predicts of svtoolkit's networks is read from what ``benchmarks.memory`` wrote; of the reversible ones it also
predicts what ``benchmarks.textbook`` needs, which is more like what was measured for the paper. `--page` writes the
tables into a page, between its marks; without `--output` from the file that `--record` names, in a moment.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import write_page, write_record
from benchmarks.memory_figures import title_of
from benchmarks.memory_ledger import GIB, LARGE_BATCH
from benchmarks.published import PUBLISHED, TABLE_I, TABLE_V, TABLE_VI, TABLE_VII, TOTAL_BATCH, optimizer_of
from benchmarks.textbook import invert_by_the_book
from benchmarks.training_step import BINS, CLASSES, FRAMES, OPTIMIZERS, REVERSIBLE, STORE, is_reversible
from svtoolkit.config import MemoryPredictionConfig, MemoryStrategyConfig, ModelConfig
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.profiler import SAMPLES_PER_FRAME, profiler_of
from svtoolkit.planning.step_profile import StepProfile

RESULTS = Path(__file__).resolve().parent / "results"
BEGIN = "<!-- begin: benchmarks/paper_tables.py -->\n"

WAVEFORM_BYTES = 4 * SAMPLES_PER_FRAME * FRAMES

REASONS = {
    "allocator": "theirs is read from the GPU: what the allocator holds, gaps and cuDNN's workspaces are in it",
    "table I": "of ResNet34 the paper's own table V has 0.06 an utterance, which is 3.84 for 64; ours agrees with that",
    "head": "ours holds the head over 17982 classes, too (0.017); theirs is the network alone",
    "others": "the context of CUDA, workspaces and gaps are no tensors; the ledger knows the batch that comes in",
    "whole": "theirs is the whole memory divided by the batch: table I's sum, 5.692, is 16 times 0.356. All four "
    "such figures times the largest batch beside them are more than 11",
    "reversal": "ours differentiates one residual function at a time by hand, and keeps less inside it; theirs is what "
    "a reversal by the book needs",
    "type I": "as *reversal*; also, theirs seems to store the ordinary blocks, which ours recomputes",
    "outlier": "theirs is a third more than that of RevNet140, which has the same widths; depth is free by the paper's "
    "section VI-C1, and by both predictions",
    "8 bits": "state does not grow with the batch. What is published to be saved, times the batch, is more than "
    "all state of the network in 32 bits: it is rounding, or no state",
    "calibrated": "this batch sets the budget of 9.2 GiB",
    "budget": "what 11 GB leave for tensors is taken to be the same for all networks",
    "batch": "256 divided by the largest batch, rounded up, as all of theirs are by their own batches",
}
"""Why a figure deviates."""


@dataclass(frozen=True)
class Figure:
    """One cell of a table.

    Attributes:
        table: I, V, VI or VII.
        what: the column; of table I the row.
        predicted: of svtoolkit; None: it has no such figure.
        by_the_book: predicted of a reversal by the book; None of networks that are not reversible.
        deviation, book_deviation: of these from the published one, as a share of it.
        reason: one of ``REASONS``.
    """

    table: str
    network: str
    what: str
    published: float
    predicted: float | None
    by_the_book: float | None
    deviation: float | None
    book_deviation: float | None
    reason: str


GB, COMPRESSION, BATCH, GPUS = "GB per utterance", "compression", "largest batch", "GPUs"
EIGHT_BIT = ", 8-bit state"


def measure_book(networks: Iterable[str], budget_gib: float) -> dict[str, dict[str, Any]]:
    """Network -> GiB per utterance and the largest batch with 32-bit and with 8-bit state, of reversals by the book."""
    found = {}
    for name in networks:
        optimizer = optimizer_of(name)
        question = MemoryPredictionConfig(
            frames=FRAMES, num_bins=BINS, num_classes=CLASSES, device="cpu", model=ModelConfig(name),
            optim=OPTIMIZERS[optimizer](),
        )  # fmt: skip
        with profiler_of(question) as profiler:
            invert_by_the_book(profiler.network)
            step = profiler.profile_step(MemoryStrategyConfig(STORE), "fp32")
            states = [profiler.profile_update(OPTIMIZERS[key]()).state for key in (optimizer, f"{optimizer}_8bit")]
        found[name] = {
            "gib_per_utterance": (step.highest(LARGE_BATCH).per_crop - WAVEFORM_BYTES) / GIB,
            "largest_batch": _largest_batch(step, budget_gib * GIB - states[0]),
            "largest_batch_8bit": _largest_batch(step, budget_gib * GIB - states[1]),
        }
        print(f"{name}: {found[name]}", file=sys.stderr)
    return found


def _largest_batch(step: StepProfile, budget: float) -> int:
    """The most utterances that fit, waveforms left out, as in what is predicted of our own."""
    batch = 0
    while step.peak_bytes(batch + 1) - WAVEFORM_BYTES * (batch + 1) <= budget:
        batch += 1
    return batch


def table_one(breakdowns: Mapping[str, Any]) -> list[Figure]:
    """Parts of a step's peak, in GB (theirs) and GiB (ours)."""
    figures = []
    for name, published in TABLE_I.items():
        row = next(row for row in breakdowns[name]["rows"] if row["batch"] == published["batch"])
        at_peak = {kind: size / GIB for kind, size in row["at_peak"].items()}
        predicted = {
            "activations": (at_peak["activations"] + at_peak["transients"] + at_peak["gradients"]),
            "optimizer_states": at_peak["optimizer_state"],
            "weights": at_peak["weights"],
            "others": at_peak["input"] + at_peak["buffers"] + at_peak["other"],
        }
        reasons = {"optimizer_states": "head", "weights": "head", "others": "others"}
        reasons["activations"] = "table I" if name == "resnet34" else "allocator"
        for what, value in predicted.items():
            figures.append(_figure("I", name, what, published[what], value, None, reasons[what]))
    return figures


def tables_five_and_six(records: Mapping[str, Any], book: Mapping[str, Any]) -> list[Figure]:
    """GB per utterance, times less than the stored peer, and largest batch, with 32-bit and with 8-bit state."""
    figures = []
    for name, published in PUBLISHED.items():
        table, kept = "V" if name in TABLE_V else "VI", REVERSIBLE if is_reversible(name) else STORE
        gib = records["ledger"][name]["gib_per_utterance"][kept]
        batches, optimizer = records["largest_batch"][name]["largest_batch"], optimizer_of(name)
        batch = batches[f"{kept}, {optimizer}"]
        if published.peer is None:
            reason = "allocator" if table == "V" else "whole"
            figures.append(_figure(table, name, GB, published.gb, gib, None, reason))
            reason = "calibrated" if name == "resnet34" else "budget"
            figures.append(_figure(table, name, BATCH, published.batch, batch, None, reason))
            continue
        peer, theirs = records["ledger"][published.peer]["gib_per_utterance"][STORE], book[name]
        slope, peers = theirs["gib_per_utterance"], PUBLISHED[published.peer].gb
        reason = (
            "outlier" if name == "revnet230" else "type I" if NETWORKS[name].arguments["kind"] == "I" else "reversal"
        )
        narrow = published.eight_bit_gb or 0.0, published.eight_bit_batch or 0
        figures += [
            _figure(table, name, GB, published.gb, gib, slope, reason),
            _figure(table, name, COMPRESSION, peers / published.gb, peer / gib, peer / slope, reason),
            _figure(table, name, BATCH, published.batch, batch, theirs["largest_batch"], reason),
            _figure(table, name, GB + EIGHT_BIT, narrow[0], gib, slope, "8 bits"),
            _figure(
                table,
                name,
                BATCH + EIGHT_BIT,
                narrow[1],
                batches[f"{kept}, {optimizer}_8bit"],
                theirs["largest_batch_8bit"],
                reason,
            ),
        ]
    return figures


def table_seven(figures: Sequence[Figure]) -> list[Figure]:
    """GPUs for ``TOTAL_BATCH`` crops a step, by the largest batches."""
    batches = {figure.network: figure for figure in figures if figure.what == BATCH}

    def gpus(batch: float | None) -> int | None:
        return None if batch is None else -(-TOTAL_BATCH // int(batch))

    return [
        _figure("VII", name, GPUS, count, gpus(batches[name].predicted), gpus(batches[name].by_the_book), "batch")
        for name, (count, _) in TABLE_VII.items()
    ]


def _figure(
    table: str,
    network: str,
    what: str,
    published: float,
    predicted: float | None,
    book: float | None,
    reason: str,
) -> Figure:
    def deviation(value: float | None) -> float | None:
        return None if value is None else round(value / published - 1, 3)

    def rounded(value: float | None) -> float | None:
        return value if value is None or isinstance(value, int) else round(value, 4)

    return Figure(
        table,
        network,
        what,
        round(published, 4),
        rounded(predicted),
        rounded(book),
        deviation(predicted),
        deviation(book),
        reason,
    )


def format_page(figures: Sequence[Figure]) -> str:
    """Markdown: the tables, each cell with its deviation in brackets, and the reasons."""
    by_place = {(figure.network, figure.what): figure for figure in figures if figure.table in ("V", "VI")}
    one = [figure for figure in figures if figure.table == "I"]
    seven = [figure for figure in figures if figure.table == "VII"]
    lines = ["**Table I**, parts of the memory of a step, GB (theirs) and GiB (ours):", ""]
    lines += _head("network", "part", "published", "predicted", "why")
    for figure in one:
        part = figure.what.replace("_", " ")
        lines.append(_row(title_of(figure.network), part, *_cells(figure)[:2], figure.reason))
    for table, names in (("V", TABLE_V), ("VI", TABLE_VI)):
        lines += ["", f"**Table {table}**, GB (theirs) and GiB (ours) per utterance:", ""]
        lines += _head(
            "network", "published", "predicted", "by the book", "compression, published", "predicted", "by the book",
            "published with 8-bit state", "why",
        )  # fmt: skip
        lines += [_row(title_of(name), *_memory_cells(name, by_place)) for name in names]
        lines += ["", f"**Table {table}**, largest batch in 11 GB:", ""]
        lines += _head(
            "network", "published", "predicted", "by the book", "with 8-bit state, published", "predicted",
            "by the book", "why",
        )  # fmt: skip
        for name in names:
            wide, narrow = by_place[name, BATCH], by_place.get((name, BATCH + EIGHT_BIT))
            lines.append(_row(title_of(name), *_cells(wide), *_cells(narrow), wide.reason))
    lines += ["", f"**Table VII**, GPUs of 11 GB for {TOTAL_BATCH} crops a step:", ""]
    lines += _head("network", "published", "predicted", "by the book", "why")
    lines += [_row(title_of(figure.network), *_cells(figure), figure.reason) for figure in seven]
    used = {figure.reason for figure in figures}
    lines += ["", "Why:", "", *(f"- *{key}*: {text}." for key, text in REASONS.items() if key in used)]
    return "\n".join(lines) + "\n"


def _memory_cells(name: str, by_place: Mapping[tuple[str, str], Figure]) -> list[str]:
    narrow = by_place.get((name, GB + EIGHT_BIT))
    reason = by_place[name, GB].reason + (", 8 bits" if narrow else "")
    eight_bit = f"{narrow.published:g}" if narrow else ""
    return [*_cells(by_place[name, GB]), *_cells(by_place.get((name, COMPRESSION))), eight_bit, reason]


def _cells(figure: Figure | None) -> list[str]:
    """Published, predicted, by the book."""
    if figure is None:
        return ["", "", ""]
    pairs = ((figure.predicted, figure.deviation), (figure.by_the_book, figure.book_deviation))
    return [
        f"{figure.published:.4g}",
        *("" if value is None else f"{value:.4g} ({share:+.0%})" for value, share in pairs),
    ]


def _head(*names: str) -> list[str]:
    return [_row(*names), f"|{'---|' * len(names)}"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def figures_of(memory: Mapping[str, Any], book: Mapping[str, Any]) -> list[Figure]:
    """All figures, from the document of ``benchmarks.memory`` and what ``measure_book`` found."""
    records = memory["parts"]
    figures = table_one(records["breakdown"]) + tables_five_and_six(records, book)
    return figures + table_seven(figures)


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=Path, default=RESULTS / "memory.json", help="what benchmarks.memory wrote")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--record", type=Path, default=RESULTS / "paper_tables.json", help="read without --output")
    parser.add_argument("--page", type=Path, help="page to write the tables into")
    options = parser.parse_args(words)
    memory = json.loads(options.memory.read_text(encoding="utf-8"))
    if options.output is None:
        book = json.loads(options.record.read_text(encoding="utf-8"))["by_the_book"]
    else:
        budget = memory["parts"]["largest_batch"]["resnet34"]["budget_gib"]
        book = measure_book(filter(is_reversible, PUBLISHED), budget)
    figures = figures_of(memory, book)
    if options.output is not None:
        cells = [asdict(figure) for figure in figures]
        write_record(options.output, "paper_tables", words, ["torch"], by_the_book=book, reasons=REASONS, figures=cells)
    tables = format_page(figures)
    print(tables)
    if options.page is not None:
        write_page(options.page, BEGIN, tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
