"""The deepest networks, and the strongest published ones, that train with 256 crops a step in 11, 4 and 1 GiB.

    python -m benchmarks.extremes --output benchmarks/results/extremes.json --page docs/memory.md

A step is counted on fake tensors: weights, gradients, optimizer state and what a micro-batch needs, and beside them the
context, a convolution's workspace and the slack of the allocator (``svtoolkit.planning.cards``). Its time is the
roofline of its operations on the card, in times that of stored activations at the same micro-batch, whether these would
fit or not. The effective batch is 256, in micro-batches of 8 or more.

Depth grows in the third stage, and memory with it on a straight line, one for the passes and one for the update: it is
laid through two depths, and a third one shows how straight it is. The waterfall adds one option after the other to a
step on 64 crops.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.extremes_page import format_page
from benchmarks.extremes_steps import SMALLEST_MICRO_BATCH, WATERFALL_BATCH, Step, Way, profile, way
from benchmarks.machine import command_line, write_page, write_record
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.cards import CARDS, GIB
from svtoolkit.registry import Row

RESULTS = Path(__file__).resolve().parent / "results"
BEGIN = "<!-- begin: benchmarks/extremes.py -->\n"

GPUS = ("2080ti", "3050_laptop", "gtx750")
"""Cards of 11, 4 and 1 GiB, as sold: a process sees a little less."""

VOX1_H = {
    "redimnet2_b6": 0.985, "resnet293": 1.311, "revnet230": 1.33, "revnet245": 1.35, "resnet152": 1.39,
    "revnet197": 1.42,
}  # fmt: skip
"""Published EER on VoxCeleb1-H in percent, trained on VoxCeleb2: of the first two, fine-tuned, by WeSpeaker
(docs/published_models.md), of the others by Liu & Qian, table V."""

TIMES = (1.2, 1.35, 1.7, 2.0)
"""Of plans that are tried: in times of a step with stored activations."""

DEEP = {"ResNet": "resnet152", "RevNet": "revnet197", "DF-RevNet": "df_revnet377"}
"""Family -> the network of which the third stage is varied."""
DEPTHS, CHECKED_DEPTH = (40, 80), 160
"""Blocks of the third stage: where the line is laid, and where it is tried. Shallow networks are on another one: only
of a deep stage gradients that wait to be added to those of an earlier micro-batch are the peak."""


# ---- the strongest ----


def ways_of(network: str) -> list[Way]:
    """Those that keep ever less: the quickest that fits is taken."""
    ways = [("store", {}), ("checkpoint", {}), *(("planned", {"times": times}) for times in TIMES)]
    if NETWORKS[network].help in ("RevNet", "DF-RevNet"):
        ways = [("store", {}), ("reversible", {})]
    plain = [way(name, precision, "sgd", **settings) for name, settings in ways for precision in ("fp32", "fp16")]
    return plain + [replace(each, optimizer="sgd_8bit") for each in plain]


def strongest(network: str) -> list[dict[str, Any]]:
    """Of each card the way that is quickest and fits, if there is one."""
    steps = profile(network, ways_of(network))
    return [_quickest(network, steps, gpu) for gpu in GPUS]


def _quickest(name: str, steps: dict[Way, Step], gpu: str) -> dict[str, Any]:
    card = CARDS[gpu]
    row: dict[str, Any] = {"gpu": gpu, "network": name, "eer_vox1_h": VOX1_H.get(name), "way": None}
    fitting = {each: step.micro_batch(card) for each, step in steps.items()}
    fitting = {each: size for each, size in fitting.items() if size >= SMALLEST_MICRO_BATCH}
    if not fitting:
        each = min(steps, key=lambda key: steps[key].needed(SMALLEST_MICRO_BATCH, card))
        return row | {"least_gib": round(steps[each].needed(SMALLEST_MICRO_BATCH, card) / GIB, 2)}
    best = min(fitting, key=lambda each: steps[each].seconds(fitting[each], card))
    stored = max(
        (each for each in steps if each.memory.strategy == "store" and each.precision == best.precision),
        key=lambda each: each.optimizer == best.optimizer,
    )
    size, step = fitting[best], steps[best]
    return row | {
        "way": best.title,
        "micro_batch": size,
        "gib": round(step.needed(size, card) / GIB, 2),
        "seconds": round(step.seconds(size, card), 2),
        "times_stored": round(step.seconds(size, card) / steps[stored].seconds(size, card), 2),
        "stored_micro_batch": steps[stored].micro_batch(card),
    }


# ---- the deepest ----


def deep_ways(family: str) -> list[Way]:
    if family == "ResNet":
        stored = [way("store", "fp32", "sgd"), way("store", "fp16", "sgd_8bit")]
        return [*stored, way("checkpoint", "fp32", "sgd"), way("checkpoint", "fp16", "sgd_8bit")]
    return [way("store", "fp32", "sgd"), way("reversible", "fp32", "sgd"), way("reversible", "fp16", "sgd_8bit"),
            way("store", "fp16", "sgd_8bit")]  # fmt: skip


@contextmanager
def deepened(network: str, blocks: int) -> Iterator[str]:
    """The network with so many blocks in its third stage, by a name of its own for as long as the block lasts."""
    row: Row = NETWORKS[network]
    first, second, _, last = row.arguments["blocks"]
    name = f"{network}_{blocks}"
    deep = replace(row, arguments=row.arguments | {"blocks": (first, second, blocks, last)})
    with mock.patch.dict(NETWORKS.rows, {name: deep}):
        yield name


@dataclass(frozen=True)
class Line:
    """What depends on the depth along a straight line: from two depths to any other."""

    depths: tuple[int, int]
    values: tuple[float, float]

    def at(self, depth: float) -> float:
        (one, other), (low, high) = self.depths, self.values
        return low + (high - low) * (depth - one) / (other - one)

    def where(self, value: float) -> int:
        """The greatest depth at which no more than this is reached; 0: none."""
        (one, other), (low, high) = self.depths, self.values
        return max(0, int(one + (value - low) * (other - one) / (high - low)))


def deepest(family: str) -> list[dict[str, Any]]:
    """Of each card and way: blocks of the third stage, layers and parameters at most, in micro-batches of 8."""
    network, ways = DEEP[family], deep_ways(family)
    depths = (*DEPTHS, CHECKED_DEPTH)
    steps: dict[int, dict[Way, Step]] = {}
    for blocks in depths:
        with deepened(network, blocks) as name:
            steps[blocks] = profile(name, ways)
    return [_depth_of(family, gpu, each, ways, steps) for gpu in GPUS for each in ways]


def _depth_of(
    family: str, gpu: str, chosen: Way, ways: Sequence[Way], steps: dict[int, dict[Way, Step]]
) -> dict[str, Any]:
    card, size = CARDS[gpu], SMALLEST_MICRO_BATCH
    stored = next(each for each in ways if each.memory.strategy == "store" and each.precision == chosen.precision)

    def line(value: Callable[[Step], float], each: Way = chosen) -> Line:
        one, other = (value(steps[depth][each]) for depth in DEPTHS)
        return Line(DEPTHS, (one, other))

    needed = [line(lambda step, peak=peak: step.needed_at_peaks(size, card)[peak]) for peak in (0, 1)]
    blocks = min(each.where(card.memory_bytes) for each in needed)
    row: dict[str, Any] = {"gpu": gpu, "family": family, "way": chosen.title, "blocks": blocks}
    row |= {"layers": 0, "parameters": 0, "times_stored": None}
    if blocks:
        seconds, base = (line(lambda step: step.seconds(size, card), each).at(blocks) for each in (chosen, stored))
        row |= {
            "layers": round(line(lambda step: step.layers or 0).at(blocks)),
            "parameters": round(line(lambda step: step.parameters).at(blocks)),
            "times_stored": round(seconds / base, 2),
        }
    tried = steps[CHECKED_DEPTH][chosen].needed(size, card)
    return row | {"line_off": round(max(each.at(CHECKED_DEPTH) for each in needed) / tried - 1, 4) + 0.0}


# ---- the waterfall ----

WATERFALLS = {
    "revnet197": [
        way("store", "fp32", "sgd"),
        way("reversible", "fp32", "sgd"),
        way("reversible", "fp16", "sgd"),
        way("reversible", "fp16", "sgd_8bit"),
    ],
    "resnet152": [
        way("store", "fp32", "sgd"),
        way("store", "fp16", "sgd"),
        way("planned", "fp16", "sgd"),
        way("planned", "fp16", "sgd_8bit"),
    ],
    "df_revnet377": [
        way("store", "fp32", "adamw"),
        way("reversible", "fp32", "adamw"),
        way("reversible", "fp16", "adamw"),
        way("reversible", "fp16", "adamw_8bit"),
    ],
}
"""Network -> ways, each with one option more than the one before."""


def waterfall(network: str, ways: Sequence[Way]) -> list[dict[str, Any]]:
    """MiB at the peak of a step on ``WATERFALL_BATCH`` crops, by kind, and what each option saves of it."""
    rows: list[dict[str, Any]] = []
    steps = profile(network, ways)
    for each in ways:
        step = steps[each]
        level = step.step.highest(WATERFALL_BATCH)
        passes = step.step.peak_bytes(WATERFALL_BATCH) + step.update.state
        update = step.step.weights + step.step.gradients + step.update.state + step.update.transients
        of_passes = {
            "weights": step.step.weights,
            "gradients": level.gradients,
            "optimizer state": step.update.state,
            "activations": level.activations * WATERFALL_BATCH,
            "transients": level.transients * WATERFALL_BATCH + level.fixed - level.gradients,
        }
        of_update = {
            "weights": step.step.weights,
            "gradients": step.step.gradients,
            "optimizer state": step.update.state,
            "activations": 0,
            "transients": step.update.transients,
        }
        kinds = of_passes if passes >= update else of_update
        peak = max(passes, update)
        saved = rows[-1]["peak_mib"] - peak / 2**20 if rows else 0.0
        rows.append(
            {
                "network": network,
                "way": each.title,
                "mib": {kind: round(size / 2**20, 1) for kind, size in kinds.items()},
                "peak_mib": round(peak / 2**20, 1),
                "saved_mib": round(saved, 1) + 0.0,
            }
        )
    return rows


Rows = Iterator[list[dict[str, Any]]]

TABLES: dict[str, Callable[[Sequence[str]], Rows]] = {
    "waterfall": lambda networks: (waterfall(name, ways) for name, ways in WATERFALLS.items()),
    "deepest": lambda networks: (deepest(family) for family in DEEP),
    "strongest": lambda networks: (strongest(name) for name in networks),
}
"""Rows of each table as they are counted, of the networks among which the strongest is."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="JSON file to write; else the tables are those of --record")
    parser.add_argument("--record", type=Path, default=RESULTS / "extremes.json", help="read without --output")
    parser.add_argument("--networks", nargs="+", default=list(VOX1_H), help="among which the strongest is")
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES), help="to count anew")
    parser.add_argument("--page", type=Path, help="page to write the tables into")
    options = parser.parse_args(words)
    if options.output is None:
        found = json.loads(options.record.read_text(encoding="utf-8"))
    else:
        found = {part: [] for part in TABLES}
        commands: dict[str, str] = {}
        if options.output.is_file():
            before = json.loads(options.output.read_text(encoding="utf-8"))
            found, commands = {part: before[part] for part in TABLES}, before["commands"]
        found |= {part: [] for part in options.tables}
        commands |= dict.fromkeys(options.tables, command_line("extremes", words))
        for part in options.tables:
            for rows in TABLES[part](options.networks):
                found[part] += rows
                write_record(options.output, "extremes", words, ["torch"], commands=commands, **found)
    text = format_page(found)
    print(text)
    if options.page is not None:
        write_page(options.page, BEGIN, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
