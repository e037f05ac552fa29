"""Memory against time of plans for ordinary networks: memory=planned beside everything else that recomputes.

    python -m benchmarks.pareto --output benchmarks/results/pareto.json --figure docs/images/pareto.png

Memory is what the ledger finds for one more crop of 200 frames in a batch so large that nothing else weighs; time is
counted for a GPU (2080 Ti), as the planner counts it, of the same step: forward and backward pass of the network as it
is run. Of each network:

- memory=planned: the fastest plan in as much memory as each of the others takes, and the leanest in so many times the
  time of stored activations;
- memory=recompute_norm, with and without expansions; memory=checkpoint by blocks, sqrt and recursive;
- torch's partitioner with ``activation_memory_budget`` (He & Yu, aot_autograd), of the networks of --compiled.

The command fails where one of the others has a point that no point of memory=planned is at least as good as, within
``TOLERANCE`` of both. With --rounds some points are run on the CPU, too: seconds of one processor.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from benchmarks.machine import load_average, open_command, write_record
from benchmarks.training_step import BINS, FRAMES
from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.planner.choice import BATCH, GIB
from svtoolkit.memory.planner.clock import CONSUMER_GPU, Clock
from svtoolkit.models import build_model
from svtoolkit.reporting.canvas import COLOURS, GRID, drawing, png_bytes
from svtoolkit.reporting.inline_svg import INK
from svtoolkit.reversible.parts import two_for_all
from svtoolkit.reversible.recomputation import untracked_statistics
from svtoolkit.system.atomic import atomic_write

NETWORKS = ("resnet34", "resnet152", "resnet293", "df_resnet233", "redimnet2_b6", "eres2netv2")
OTHERS: dict[str, dict[str, object]] = {
    "recompute_norm": {"strategy": "recompute_norm"},
    "recompute_norm, expansions": {"strategy": "recompute_norm", "expansions": True},
    "checkpoint, blocks": {"strategy": "checkpoint", "segments": "blocks"},
    "checkpoint, sqrt": {"strategy": "checkpoint", "segments": "sqrt"},
    "checkpoint, recursive": {"strategy": "checkpoint", "segments": "recursive"},
}
TIMES = (1.1, 1.35, 1.7)
CROPS = {"frames": FRAMES, "num_bins": BINS}
BUDGETS = (0.5, 0.2)
"""Of torch's partitioner: share of the activations that it may keep, between none and those of its default."""
TOLERANCE = 1.005
PLANNED, STORED, TORCH = "planned", "store", "torch, activation_memory_budget"


@dataclass(frozen=True)
class Point:
    """A network under one strategy.

    Attributes:
        gib: an utterance.
        times: counted seconds, in those of stored activations.
        measured: seconds of a processor, in those of stored activations; None: not measured.
    """

    network: str
    strategy: str
    setting: str
    gib: float
    times: float
    measured: float | None = None


Step = Callable[[], object]
Put = Callable[[nn.Module], object]


def count(name: str, put: Put) -> tuple[float, float]:
    """GiB an utterance, and seconds of a crop, of a step of the network that ``put`` was called with."""
    with QuickFakeTensorMode():
        network = build_model(name).train()
        put(network)
        return count_step(network, lambda frames: network(frames), BATCH)


def count_step(network: nn.Module, forward: Callable[[Tensor], Tensor], batch: int) -> tuple[float, float]:
    """As ``count``, of a given forward pass; weights and buffers that are there before are not counted."""
    with MemoryLedger() as ledger, Clock(CONSUMER_GPU) as clock, two_for_all(clock):
        ledger.count([*network.parameters(), *network.buffers()])
        before = sum(ledger.live().values())
        forward(torch.randn(batch, FRAMES, BINS)).sum().backward()
    highest = max(accumulate(change.difference for change in ledger.changes)) - before
    return highest / batch / GIB, clock.seconds / batch


def planned(gibs: Sequence[float]) -> Iterator[tuple[str, Put]]:
    """Plans as they are asked for: in so much memory, and in so much time."""
    for gib in gibs:
        yield f"{gib:.4f} GiB", _applied({"strategy": "planned", "gib_per_utterance": gib, **CROPS})
    for times in TIMES:
        yield f"{times} times", _applied({"strategy": "planned", "times": times, **CROPS})


def measure_points(name: str, *, compiled: bool, rounds: int, batch: int) -> list[Point]:
    gib_stored, seconds_stored = count(name, lambda network: apply_strategy(network, "store"))
    points = [Point(name, STORED, "", gib_stored, 1.0)]
    puts: dict[Point, Put] = {points[0]: lambda network: apply_strategy(network, "store")}
    for strategy, settings in OTHERS.items():
        put = _applied(settings)
        gib, seconds = count(name, put)
        points.append(Point(name, strategy, "", gib, seconds / seconds_stored))
        puts[points[-1]] = put
    if compiled:
        for budget in BUDGETS:
            gib, seconds = count_partitioned(name, budget)
            points.append(Point(name, TORCH, str(budget), gib, seconds / seconds_stored))
    for setting, put in planned([point.gib for point in points[1:]]):
        try:
            gib, seconds = count(name, put)
        except UserError:  # no plan takes so little
            continue
        point = Point(name, PLANNED, setting, gib, seconds / seconds_stored)
        print(point, flush=True)
        points.append(point)
        if setting == "1.35 times":
            puts[point] = put
    if not rounds:
        return points
    taken = time_all(name, list(puts.values()), rounds, batch)
    measured = dict(zip(puts, taken, strict=True))
    return [replace(p, measured=measured[p] / measured[points[0]]) if p in measured else p for p in points]


def _applied(settings: dict[str, object]) -> Put:
    return lambda network: apply_strategy(network, **settings)  # type: ignore[arg-type]


def time_all(name: str, puts: Sequence[Put], rounds: int, batch: int) -> list[float]:
    """Seconds of a processor for a step under each, the fastest of several rounds."""
    network = build_model(name).train()
    frames = torch.randn(batch, FRAMES, BINS)
    taken: list[list[float]] = [[] for _ in puts]
    for timed_round in range(-1, rounds):
        for seconds, put in zip(taken, puts, strict=True):
            put(network)
            network.zero_grad(set_to_none=True)
            begin = time.process_time()
            network(frames).square().sum().backward()
            if timed_round >= 0:
                seconds.append(time.process_time() - begin)
    return [min(seconds) for seconds in taken]


def count_partitioned(name: str, budget: float) -> tuple[float, float]:
    """As ``count``, of the graphs that torch makes of the network for a share of activations that may be kept."""
    from functorch.compile import aot_module, min_cut_rematerialization_partition, nop
    from torch._functorch import config

    found = []
    with _changed(config, activation_memory_budget=budget):
        for batch in (2, 4):
            network = build_model(name).train()
            module = aot_module(
                network, fw_compiler=nop, bw_compiler=nop, partition_fn=min_cut_rematerialization_partition
            )
            with untracked_statistics(network):  # which the graphs would modify in place
                module(torch.randn(batch, FRAMES, BINS)).sum().backward()  # is compiled
                network.zero_grad(set_to_none=True)
                found.append([value * batch for value in count_step(network, module, batch)])
    return (found[1][0] - found[0][0]) / 2, (found[1][1] - found[0][1]) / 2


@contextmanager
def _changed(config: object, **settings: object) -> Iterator[None]:
    before = {key: getattr(config, key) for key in settings}
    for key, value in settings.items():
        setattr(config, key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            setattr(config, key, value)


def not_matched(points: Sequence[Point]) -> list[Point]:
    """Points of others that no plan of the same network is at least as good as."""
    return [
        other
        for other in points
        if other.strategy != PLANNED
        and not any(
            plan.gib <= other.gib * TOLERANCE and plan.times <= other.times * TOLERANCE
            for plan in points
            if (plan.network, plan.strategy) == (other.network, PLANNED)
        )
        and other.strategy != STORED
    ]


@drawing()
def draw(points: Sequence[Point]) -> bytes:
    """A panel for each network: memory to the right, time upwards."""
    networks = list(dict.fromkeys(point.network for point in points))
    columns = min(3, len(networks))
    rows = -(-len(networks) // columns)
    figure = Figure(figsize=(4 * columns, 3.4 * rows + 0.6), layout="constrained")
    strategies = list(dict.fromkeys(point.strategy for point in points))
    for number, network in enumerate(networks):
        axes = figure.add_subplot(rows, columns, number + 1)
        for strategy, colour, marker in zip(strategies, _COLOURS, _MARKERS, strict=False):
            own = sorted((p.gib, p.times) for p in points if (p.network, p.strategy) == (network, strategy))
            if own:
                line = "-" if strategy == PLANNED else "none"
                axes.plot(
                    *zip(*own, strict=True), linestyle=line, marker=marker, color=colour, markersize=5, label=strategy
                )
        axes.set_title(network)
        axes.set_xlabel("GiB an utterance")
        axes.set_ylabel("time, of stored")
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncol=columns)
    return png_bytes(figure)


_COLOURS = (INK, *COLOURS[1:], GRID, COLOURS[0])
_MARKERS = ("o", "s", "D", "v", "^", "<", "P", "o")


def format_table(points: Sequence[Point]) -> str:
    lines = [
        "| network | strategy | setting | GiB an utterance | time, counted | time, measured |",
        "|---|---|---|---|---|---|",
    ]
    for p in points:
        measured = "" if p.measured is None else f"{p.measured:.2f}"
        lines.append(f"| {p.network} | {p.strategy} | {p.setting} | {p.gib:.4f} | {p.times:.3f} | {measured} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--compiled", nargs="*", default=NETWORKS, help="networks that torch partitions, too")
    parser.add_argument("--rounds", type=int, default=0, help="steps of some points that are timed")
    parser.add_argument("--batch", type=int, default=2, help="crops of these steps")
    parser.add_argument("--add", action="store_true", help="to the networks that the output has already")
    parser.add_argument("--figure", type=Path, help="where the figure is drawn")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    load = load_average()
    points: list[Point] = []
    if options.add and options.output.exists():
        points = [Point(**each) for each in json.loads(options.output.read_text(encoding="utf-8"))["points"]]
    points = [point for point in points if point.network not in options.networks]
    for name in options.networks:
        points += measure_points(name, compiled=name in options.compiled, rounds=options.rounds, batch=options.batch)
    print(format_table(points))
    left = not_matched(points)
    for point in left:
        print(f"no plan is as good as {point}", file=sys.stderr)
    rounded = [replace(p, gib=round(p.gib, 5), times=round(p.times, 4)) for p in points]
    write_record(
        options.output,
        "pareto",
        words,
        ["torch"],
        threads=1,
        load_average_before=load,
        rounds=options.rounds,
        batch=options.batch,
        tolerance=TOLERANCE,
        points=[asdict(point) for point in rounded],
    )
    if options.figure:
        with atomic_write(options.figure, "wb") as stream:
            stream.write(draw(points))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
