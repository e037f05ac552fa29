"""Figures of memory, drawn from what ``benchmarks.memory`` wrote.

python -m benchmarks.memory_figures --input benchmarks/results/memory.json --folder docs/images
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from benchmarks.memory_ledger import GIB, LARGE_BATCH, TIMELINE
from benchmarks.published import PUBLISHED, optimizer_of
from benchmarks.training_step import CHECKPOINT, REVERSIBLE, STORE
from svtoolkit.errors import UserError
from svtoolkit.memory.step_report import BACKWARD, FORWARD, OPTIMIZER, PHASES
from svtoolkit.reporting.canvas import COLOURS, GRID, add_legend, drawing, png_bytes
from svtoolkit.reporting.inline_svg import INK
from svtoolkit.system.atomic import atomic_write

COLOUR_OF = {STORE: COLOURS[1], CHECKPOINT: COLOURS[4], REVERSIBLE: COLOURS[0]}
MARKER_OF = {STORE: "o", CHECKPOINT: "s", REVERSIBLE: "D"}
LABEL_OF = {STORE: "stored", CHECKPOINT: "per-block checkpoint", REVERSIBLE: "reversible"}

PAPER = "paper, GB (2080 Ti)"
"""As printed: whether a GB is 10^9 or 2^30 bytes the paper does not say."""

KINDS = {
    "activations": ("activations", COLOURS[0]),
    "transients": ("transients", COLOURS[5]),
    "weights": ("weights", COLOURS[2]),
    "gradients": ("gradients", COLOURS[4]),
    "optimizer_state": ("optimizer state", COLOURS[1]),
}
"""Kind of the ledger -> name and colour; what else there is (input, buffers) is other."""
OTHER = ("other", GRID)

TITLES = {
    "resnet": "ResNet",
    "revnet": "RevNet",
    "df_resnet": "DF-ResNet",
    "df_revnet": "DF-RevNet",
}
"""Beginning of a network's name -> how the paper writes it."""


def title_of(network: str) -> str:
    """Name of a network as in print: df_revnet89 -> DF-RevNet89."""
    family = network.rstrip("0123456789")
    return f"{TITLES[family]}{network[len(family) :]}" if family in TITLES else network


def memory_per_utterance(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """One line a network, log scale: GiB per utterance by strategy, and what the paper measured.

    Args:
        rows: of the summary, those with a memory per utterance; reversible networks stand below their peer.
    """
    with drawing():
        figure = Figure(figsize=(7.4, 0.26 * len(rows) + 1.1), layout=_layout())
        axes = figure.add_subplot()
        handles: dict[str, Any] = {}
        for place, row in enumerate(rows):
            gib = row["gib_per_utterance"]
            axes.plot([min(gib.values()), max(gib.values())], [place, place], color=GRID, lw=1.0, zorder=1)
            for strategy, value in gib.items():
                style: dict[str, Any] = {"marker": MARKER_OF[strategy], "color": COLOUR_OF[strategy], "ls": "none"}
                handles[LABEL_OF[strategy]] = axes.plot(value, place, ms=6, zorder=3, **style)[0]
            if row["published_gb_per_utterance"] is not None:
                paper = row["published_gb_per_utterance"]
                handles[PAPER] = axes.plot(paper, place, "x", ms=6, mew=1.5, color=INK, zorder=4)[0]
            if row["peer"] is None and place:
                axes.axhline(place - 0.5, color=INK, lw=0.6)
        axes.set_yticks(range(len(rows)), [title_of(row["network"]) for row in rows])
        for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
            tick.set_fontweight("bold" if row["peer"] is None else "normal")
        axes.set(ylim=(len(rows) - 0.5, -0.5), xscale="log", xlabel="GiB per utterance of 200 frames")
        axes.grid(False, axis="y")
        _plain_ticks(axes, (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2), rows)
        order = [name for name in (*LABEL_OF.values(), PAPER) if name in handles]
        options: dict[str, Any] = {"loc": "outside upper center", "ncols": 4, "handlelength": 1.2, "columnspacing": 1.5}
        add_legend(figure, [handles[name] for name in order], order, **options)
    return figure


def _layout() -> ConstrainedLayoutEngine:
    return ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06)


def _plain_ticks(axes: Axes, ticks: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> None:
    values = [value for row in rows for value in row["gib_per_utterance"].values()]
    values += [row["published_gb_per_utterance"] or values[0] for row in rows]
    low, high = min(values) / 1.3, max(values) * 1.3
    shown = [tick for tick in ticks if low <= tick <= high]
    axes.set_xlim(low, high)
    axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def breakdown(records: Mapping[str, Mapping[str, Any]]) -> Figure:
    """What the peak of a step on ``LARGE_BATCH`` utterances is made of, in GiB; a panel for the networks of each table.

    Args:
        records: of the part breakdown, network -> record.
    """
    bars = [(name, row) for name, record in records.items() for row in record["rows"] if row["batch"] == LARGE_BATCH]
    groups = [[bar for bar in bars if optimizer_of(bar[0]) == optimizer] for optimizer in ("sgd", "adamw")]
    groups = [group for group in groups if group]
    with drawing():
        figure = Figure(figsize=(7.4, 0.42 * len(bars) + 0.35 * len(groups) + 0.9), layout=_layout())
        ratios = {"height_ratios": [len(group) for group in groups]}
        panels = figure.subplots(len(groups), 1, squeeze=False, gridspec_kw=ratios)[:, 0]
        for axes, group in zip(panels, groups, strict=True):
            _draw_bars(axes, group)
        panels[-1].set_xlabel(f"GiB at the peak of a training step, batch {LARGE_BATCH}")
        parts = [*KINDS.values(), OTHER]
        options: dict[str, Any] = {"loc": "outside upper center", "ncols": 6, "handlelength": 1.0, "columnspacing": 1.2}
        add_legend(figure, [Patch(color=colour) for _, colour in parts], [name for name, _ in parts], **options)
    return figure


def _draw_bars(axes: Axes, bars: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    longest = max(row["peak_bytes"] for _, row in bars) / GIB
    for place, (_, row) in enumerate(bars):
        left = 0.0
        for kind, (_, colour) in KINDS.items():
            width = row["at_peak"][kind] / GIB
            axes.barh(place, width, left=left, height=0.62, color=colour)
            left += width
        peak = row["peak_bytes"] / GIB
        axes.barh(place, peak - left, left=left, height=0.62, color=OTHER[1])
        axes.text(peak + 0.01 * longest, place, f"{peak:.2f}", va="center")
    names = [f"{title_of(name)}\n{LABEL_OF[row['strategy']]}, {_optimizer(row)}" for name, row in bars]
    axes.set_yticks(range(len(bars)), names)
    axes.set(ylim=(len(bars) - 0.5, -0.5), xlim=(0, 1.1 * longest))
    axes.grid(False, axis="y")


def _optimizer(row: Mapping[str, Any]) -> str:
    names = {"sgd": "SGD", "adamw": "AdamW"}
    name, _, eight_bit = row["optimizer"].partition("_")
    return f"{'8-bit ' if eight_bit else ''}{names[name]}"


def timeline(network: str, record: Mapping[str, Any]) -> Figure:
    """Live memory over a step, stored and reversible: each phase has the same width, its allocations in order.

    Args:
        record: of the part timeline.
    """
    with drawing():
        figure = Figure(figsize=(7.4, 3.2), layout=_layout())
        axes = figure.add_subplot()
        handles, labels = [], []
        for strategy in (STORE, REVERSIBLE):
            x, y = _curve(record["live_mib"][strategy])
            colour = COLOUR_OF[strategy]
            axes.fill_between(x, y, color=colour, alpha=0.15, linewidth=0)
            handles += axes.plot(x, y, color=colour, ls="solid" if strategy == STORE else (0, (5, 1.5)))
            labels.append(f"{LABEL_OF[strategy]}, peak {max(y):.2f} GiB")
        for border in range(1, len(PHASES)):
            axes.axvline(border, color=INK, lw=0.8, ls=(0, (1, 2)))
        middles = [position + 0.5 for position in range(len(PHASES))]
        names = {FORWARD: "forward pass", BACKWARD: "backward pass", OPTIMIZER: "optimizer"}
        axes.set_xticks(middles, [names[phase] for phase in PHASES])
        axes.tick_params(axis="x", length=0)
        axes.grid(False, axis="x")
        axes.set(xlim=(0, len(PHASES)), ylim=(0, None), ylabel="live memory (GiB)")
        axes.set_title(f"{title_of(network)}, batch {record['batch']}, float32")
        add_legend(axes, handles, labels, loc="upper right")
    return figure


def _curve(phases: Mapping[str, Sequence[float]]) -> tuple[list[float], list[float]]:
    """Moments of each phase spread over a width of 1; GiB."""
    x, y = [], []
    for position, phase in enumerate(PHASES):
        live = phases[phase]
        x += [position + index / max(1, len(live) - 1) for index in range(len(live))]
        y += [value / 1024 for value in live]
    return x, y


def figures_of(document: Mapping[str, Any]) -> dict[str, Callable[[], Figure]]:
    """File name -> what draws it, of all that was measured."""
    rows = [row for row in document["summary"].get("rows", []) if row["gib_per_utterance"]]
    rows = [row for row in rows if row["network"] in PUBLISHED] or rows
    parts = document["parts"]
    found: dict[str, Callable[[], Figure]] = {}
    if rows:
        found["memory_per_utterance.png"] = partial(memory_per_utterance, rows)
    if parts.get("breakdown"):
        found["memory_breakdown.png"] = partial(breakdown, parts["breakdown"])
    for network, record in parts.get("timeline", {}).items():
        suffix = "" if network in TIMELINE else f"_{network}"
        found[f"memory_timeline{suffix}.png"] = partial(timeline, network, record)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, default=Path("benchmarks/results/memory.json"), help="JSON file to read")
    parser.add_argument("--folder", type=Path, default=Path("docs/images"), help="where the figures go")
    options = parser.parse_args(arguments)
    try:
        figures = figures_of(_read(options.input))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, draw in figures.items():
        with atomic_write(options.folder / name, "wb") as stream:
            stream.write(png_bytes(draw()))
        print(options.folder / name)
    return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; write it with python -m benchmarks.memory") from error
    except ValueError as error:
        raise UserError(f"{path}: is no JSON file; write it with python -m benchmarks.memory") from error
    if not isinstance(document, dict) or not {"parts", "summary"} <= document.keys():
        raise UserError(f"{path}: is not what benchmarks.memory wrote; write it with python -m benchmarks.memory")
    return document


if __name__ == "__main__":
    sys.exit(main())
