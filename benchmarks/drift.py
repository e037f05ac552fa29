"""How far the inversion of reversible couplings drifts with depth, and what exact arithmetic makes of it.

    python -m benchmarks.drift --output benchmarks/results/drift.json --figure docs/images/reversible_drift.png

Runs of 1 to 128 couplings of basic functions on 32 channels, as they are initialised, in float32 and under autocast to
bfloat16 and float16, on the CPU: how much of the input the inversion misses, and how much of the whole gradient
(weights and input) differs from that of stored activations, both as relative L2 error, median of several seeds. Then
what exact arithmetic costs: time of a step of one reversible network with and without it.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.gpu.equality import relative_l2
from benchmarks.machine import load_average, open_command, write_record
from benchmarks.step_time import BATCH, compare_times, passes, time_in_turns
from benchmarks.training_step import BINS, FRAMES, REVERSIBLE, build_network
from svtoolkit.device import PRECISIONS, autocast
from svtoolkit.models.residual_functions import basic_function
from svtoolkit.reporting.canvas import COLOURS, add_legend, drawing, png_bytes
from svtoolkit.reversible import AdditiveCoupling, Chain, ReversibleSequence, by_block, snap
from svtoolkit.reversible.coupling import split_streams
from svtoolkit.system.atomic import atomic_write

CHANNELS = 32
MAP = (2, CHANNELS, 40, 50)
"""(batch, channels, bins, frames) of the input."""
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
EXACT = {"never": False, "always": True}
SEEDS = 3
TIMED = "revnet57"


@dataclass(frozen=True)
class Drift:
    """Relative L2 errors, median over the seeds: of the recovered input, and of the whole gradient."""

    couplings: int
    precision: str
    exact: str
    reconstruction: float
    gradient: float


def build_sequence(couplings: int, exact: str, seed: int) -> tuple[ReversibleSequence, Tensor, Tensor]:
    """A run of couplings as initialised, an input of unit variance, and the gradient of the result."""
    torch.manual_seed(seed)
    half = CHANNELS // 2
    sequence = ReversibleSequence(
        AdditiveCoupling(basic_function(half), basic_function(half)) for _ in range(couplings)
    )
    sequence.exact = EXACT[exact]
    return sequence.train(), torch.randn(MAP), torch.randn(MAP)


def reconstruction_error(sequence: ReversibleSequence, x: Tensor, precision: str) -> float:
    """Of the input streams, recovered from those of the result; in exact mode the input is what is on the grid."""
    with torch.no_grad(), autocast(x.device, precision):
        y, record = sequence.run(x)
        y1, y2 = split_streams(y, record.stream_dtype)
        for coupling in reversed(sequence.couplings()):
            y1, y2 = coupling.inverse(y1, y2, record.bits)
    expected = x if record.bits is None else snap(x, record.bits)
    return relative_l2([torch.cat([y1, y2], dim=1)], [expected])


def gradient_error(sequence: ReversibleSequence, x: Tensor, upstream: Tensor, precision: str) -> float:
    """Of the recomputed gradient against that of stored activations."""
    chain = Chain(sequence)

    def gradients(recompute: bool) -> list[Tensor]:
        chain.planner = by_block if recompute else None
        leaf = x.clone().requires_grad_()
        with autocast(x.device, precision):
            y = chain(leaf)
        return list(torch.autograd.grad(y, [leaf, *chain.parameters()], upstream.to(y.dtype)))

    return relative_l2(gradients(True), gradients(False))


def measure_drift(couplings: int, precision: str, exact: str, seeds: int) -> Drift:
    reconstruction, gradient = [], []
    for seed in range(seeds):
        sequence, x, upstream = build_sequence(couplings, exact, seed)
        reconstruction.append(reconstruction_error(sequence, x, precision))
        gradient.append(gradient_error(sequence, x, upstream, precision))
    return Drift(couplings, precision, exact, statistics.median(reconstruction), statistics.median(gradient))


def cost_of_exact_mode(name: str, rounds: int, frames: int = FRAMES, batch_size: int = BATCH) -> dict[str, Any]:
    """Time of forward and backward pass in float32, always exact to never exact."""
    features = torch.randn(batch_size, frames, BINS)
    timings = time_in_turns(
        {word: passes(build_network(name, REVERSIBLE, exact=exact), features) for word, exact in EXACT.items()}, rounds
    )
    sizes = {"network": name, "batch": batch_size, "frames": frames, "rounds": rounds}
    return sizes | {"threads": torch.get_num_threads(), "exact": compare_times(timings, "never")}


def draw(results: Sequence[Drift]) -> Figure:
    """Both errors over depth, log-log; what is 0 stands on the floor."""
    errors = [error for row in results for error in (row.reconstruction, row.gradient)]
    floor = min([1e-7, *(error for error in errors if error > 0)]) / 30
    with drawing():
        figure = Figure(figsize=(8.2, 3.6), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        titles = {"reconstruction": "Recovered input", "gradient": "Whole gradient"}
        for axes, (quantity, title) in zip(panels, titles.items(), strict=True):
            handles = _draw_panel(axes, results, quantity, floor)
            axes.set_title(title)
        panels[0].set_ylabel("relative L2 error")
        options: dict[str, Any] = {"loc": "outside lower center", "columnspacing": 1.5}
        columns = len(handles) // len(EXACT)
        order = [label for column in range(columns) for label in list(handles)[column::columns]]  # fills columns first
        add_legend(figure, [handles[label] for label in order], order, ncols=columns, **options)
    return figure


def _draw_panel(axes: Axes, results: Sequence[Drift], quantity: str, floor: float) -> dict[str, Artist]:
    """Label -> line, those without exact mode first."""
    axes.set(xscale="log", yscale="log", xlabel="couplings", ylim=(floor / 2.5, 10))
    depths = sorted({row.couplings for row in results})
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.set_xticks([], minor=True)
    powers = [power for power in range(-16, 1) if 10.0**power > 2 * floor]
    axes.set_yticks([floor, *(10.0**power for power in powers)], ["0", *(f"1e{power}" for power in powers)])
    axes.set_yticks([], minor=True)
    lines: dict[str, Artist] = {}
    for exact, dash in zip(EXACT, ("solid", (0, (4, 2))), strict=True):
        for position, precision in enumerate(dict.fromkeys(row.precision for row in results)):
            rows = [row for row in results if (row.precision, row.exact) == (precision, exact)]
            style: dict[str, Any] = {"color": COLOURS[position], "linestyle": dash, "marker": "os^"[position % 3]}
            if exact == "always":  # on the floor all lie upon each other
                style |= {"markerfacecolor": "none", "markersize": 9 - 2.5 * position}
            errors = [max(getattr(row, quantity), floor) for row in rows]
            (line,) = axes.plot([row.couplings for row in rows], errors, **{"markersize": 5} | style)
            lines[f"{precision}{', exact' if exact == 'always' else ''}"] = line
    return lines


def format_table(results: Sequence[Drift]) -> str:
    columns = list(dict.fromkeys((row.precision, row.exact) for row in results))
    head = ["couplings", *(f"{precision}{', exact' if exact == 'always' else ''}" for precision, exact in columns)]
    lines = ["error of the recovered input / of the gradient:", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    found = {(row.couplings, row.precision, row.exact): row for row in results}
    for depth in sorted({row.couplings for row in results}):
        rows = [found[depth, precision, exact] for precision, exact in columns]
        cells = [f"{row.reconstruction:.1e} / {row.gradient:.1e}" for row in rows]
        lines.append(f"| {' | '.join([str(depth), *cells])} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--figure", type=Path, help="PNG to draw")
    parser.add_argument("--deepest", type=int, default=DEPTHS[-1], help="couplings at most")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="networks of each depth")
    parser.add_argument("--network", default=TIMED, help="whose exact mode is timed")
    parser.add_argument("--frames", type=int, default=FRAMES, help="of an utterance of the timed network")
    parser.add_argument("--rounds", type=int, default=7, help="times that a step is timed")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    options = parser.parse_args(words)
    torch.set_num_threads(options.threads)
    load = load_average()
    results = [
        measure_drift(depth, precision, exact, options.seeds)
        for depth in DEPTHS
        if depth <= options.deepest
        for exact in EXACT
        for precision in PRECISIONS
    ]
    cost = cost_of_exact_mode(options.network, options.rounds, options.frames)
    print(format_table(results))
    ratio = cost["exact"]["always"]
    print(
        f"\nexact mode, {options.network}, fp32: {ratio['ratio_fastest']:.3f} times the time of the fastest step, "
        f"{ratio['ratio_median']:.3f} of the median one, {ratio['ratio_processor']:.3f} of processor time; "
        f"load average {load}"
    )
    write_record(
        options.output,
        "drift",
        words,
        ["torch"],
        load_average=[load, load_average()],
        map=MAP,
        seeds=options.seeds,
        results=[asdict(row) for row in results],
        cost_of_exact_mode=cost,
    )
    if options.figure:
        with atomic_write(options.figure, "wb") as stream:
            stream.write(png_bytes(draw(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
