"""How far predicted memory and time are from real steps on the CPU.

    python -m benchmarks.ledger_accuracy --output benchmarks/results/ledger_accuracy.json
    python -m benchmarks.ledger_accuracy --output benchmarks/results/ledger_accuracy_time.json --time-only

Memory: of each network, strategy and precision one step on fake tensors is profiled, from which `svt plan` predicts
every batch. Beside it stand real steps on several batches, whose live storage is counted operation by operation, once
with and once without the gradients of an earlier micro-batch. Of some steps torch's profiler follows what the
process's allocator hands out, too, which knows nothing of the ledger. A prediction is unsafe where a card as large as
the real peak would be said to hold the step, with the slack of the allocator that every plan adds.

Time: of each network and strategy the roofline of the row for a CPU, and seconds of one processor of forward and
backward pass, the fastest of several rounds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.config import (
    CheckpointConfig,
    MemoryPredictionConfig,
    MemoryStrategyConfig,
    ModelConfig,
    RecomputeNormConfig,
    ResNetConfig,
    SGDConfig,
)
from svtoolkit.device import autocast
from svtoolkit.distributed.world import CPU
from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.planning import cards
from svtoolkit.planning.assembly import build_trainable, for_crops
from svtoolkit.planning.profiler import SAMPLES_PER_FRAME, profiler_of
from svtoolkit.planning.profiles import strategies_tried
from svtoolkit.planning.step_profile import StepProfile

FRAMES, BINS, CLASSES = 40, 80, 100
NETWORKS: dict[str, ModelConfig] = {
    "resnet10, width 16": ResNetConfig("resnet10", base_width=16),
    "resnet34, width 8": ResNetConfig("resnet34", base_width=8),
    "revnet_tiny": ModelConfig("revnet_tiny"),
    "ecapa_tdnn_c512": ModelConfig("ecapa_tdnn_c512"),
    "xvector": ModelConfig("xvector"),
    "resnet50, width 8": ResNetConfig("resnet50", base_width=8),
    "campplus": ModelConfig("campplus"),
    "resnet18": ResNetConfig("resnet18"),
    "resnet34": ResNetConfig("resnet34"),
    "eres2net34_base": ModelConfig("eres2net34_base"),
    "redimnet_b0": ModelConfig("redimnet_b0"),
    "df_resnet56": ModelConfig("df_resnet56"),
}
BATCHES = (2, 5)
TIMED_BATCH = 4
PROFILED = ("resnet10, width 16", "resnet34, width 8", "revnet_tiny", "ecapa_tdnn_c512")
"""Networks of the independent check."""


@dataclass(frozen=True)
class Point:
    """Bytes of tensors at the peak of a step: predicted, and counted in the real one.

    Attributes:
        accumulates: whether gradients of an earlier micro-batch are there.
        workspace: bytes that a plan adds for a convolution that runs, at the most.
        allocated: what the process's allocator handed out at its peak; None: it was not followed.
    """

    network: str
    strategy: str
    precision: str
    batch: int
    accumulates: bool
    predicted: int
    measured: int
    workspace: int
    allocated: int | None = None

    @property
    def error(self) -> float:
        """Relative; above 0 where too much is predicted."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Timing:
    """Seconds of forward and backward pass on ``TIMED_BATCH`` crops."""

    network: str
    strategy: str
    predicted: float
    measured: float


class RealStep:
    """Network and head on real tensors, and what a step of training holds beside them."""

    def __init__(self, question: MemoryPredictionConfig) -> None:
        self.network, self.head, _, _ = build_trainable(
            question.model, MemoryStrategyConfig("store"), question.loss, question.optim,
            num_bins=BINS, num_classes=CLASSES, device=CPU, channels_last=True,
        )  # fmt: skip

    def run(self, batch: int, precision: str, *, keeps_gradients: bool = False) -> None:
        """Forward and backward pass on new noise."""
        if not keeps_gradients:
            self.drop_gradients()
        self.backward(self.inputs(batch), precision)

    def inputs(self, batch: int) -> list[Tensor]:
        """Features, labels and waveforms."""
        labels = torch.zeros(batch, dtype=torch.int64)
        return [torch.randn(batch, FRAMES, BINS), labels, torch.zeros(batch, SAMPLES_PER_FRAME * FRAMES)]

    def backward(self, inputs: Sequence[Tensor], precision: str) -> None:
        with autocast(CPU, precision):
            embeddings = self.network(inputs[0])
        losses = self.head(embeddings, inputs[1]).losses
        (losses.sum() / len(losses)).backward()

    def drop_gradients(self) -> None:
        for module in (self.network, self.head):
            module.zero_grad(set_to_none=True)

    def measure(self, batch: int, precision: str) -> tuple[int, int]:
        """Bytes at the peak of a first and of a second micro-batch."""
        self.drop_gradients()
        inputs = self.inputs(batch)
        parts: list[nn.Module] = [self.network, self.head]
        buffers = [buffer.clone() for module in parts for buffer in module.buffers()]
        with MemoryLedger() as ledger:
            for module in parts:
                ledger.count([*module.parameters(), *module.buffers()])
            ledger.count([*inputs, *buffers])
            peaks = []
            for _ in range(2):
                present = sum(ledger.live().values())
                begin = len(ledger.changes)
                self.backward(inputs, precision)
                sizes = np.cumsum([change.difference for change in ledger.changes[begin:]])
                peaks.append(present + int(sizes.max()))
        return peaks[0], peaks[1]

    def follow_allocator(self, batch: int, precision: str) -> int:
        """Bytes that the process hands out for a first micro-batch at the most, and what was there before."""
        self.drop_gradients()
        inputs = self.inputs(batch)
        parts: list[nn.Module] = [self.network, self.head]
        buffers = [buffer.clone() for module in parts for buffer in module.buffers()]
        there = sum(t.nbytes for module in parts for t in (*module.parameters(), *module.buffers()))
        there += sum(tensor.nbytes for tensor in (*inputs, *buffers))
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as followed:
            self.backward(inputs, precision)
        events = [event for event in followed.profiler.kineto_results.events() if event.name() == "[memory]"]
        sizes = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
        return there + int(sizes.max())


def strategy_words(memory: MemoryStrategyConfig) -> str:
    """Its name and what tells it from others of that name."""
    segments = f", {memory.segments}" if isinstance(memory, CheckpointConfig) else ""
    return (
        memory.strategy
        + segments
        + (", expansions" if isinstance(memory, RecomputeNormConfig) and memory.expansions else "")
    )


def measure_network(
    name: str, rounds: int, *, time_only: bool = False, without: Sequence[str] = ()
) -> Iterator[Point | Timing]:
    question = MemoryPredictionConfig(
        frames=FRAMES, num_bins=BINS, num_classes=CLASSES, device="cpu", model=NETWORKS[name], optim=SGDConfig()
    )
    real = RealStep(question)
    profiles: list[tuple[MemoryStrategyConfig, str, StepProfile]] = []
    with profiler_of(question) as profiler:
        for memory in [each for each in strategies_tried() if each.strategy not in without]:
            for precision in ("fp32",) if time_only else ("fp32", "bf16"):
                try:
                    profiles.append((memory, precision, profiler.profile_step(memory, precision)))
                except UserError:
                    continue
    for memory, precision, found in profiles:
        apply_strategy(real.network, **asdict(for_crops(memory, FRAMES, BINS, precision)))
        for batch in () if time_only else BATCHES:
            for accumulates, measured in zip((False, True), real.measure(batch, precision), strict=True):
                predicted = round(found.peak_bytes(batch, accumulates=accumulates))
                follows = name in PROFILED and batch == max(BATCHES) and not accumulates
                allocated = real.follow_allocator(batch, precision) if follows else None
                words = strategy_words(memory)
                workspace = round(found.largest_convolution * batch)
                yield Point(name, words, precision, batch, accumulates, predicted, measured, workspace, allocated)
    in_fp32 = [(memory, found) for memory, precision, found in profiles if precision == "fp32"]
    taken: dict[str, list[float]] = {}
    for _ in range(rounds + 1):
        for memory, _found in in_fp32:
            apply_strategy(real.network, **asdict(for_crops(memory, FRAMES, BINS, "fp32")))
            real.drop_gradients()
            inputs = real.inputs(TIMED_BATCH)
            begin = time.process_time()
            real.backward(inputs, "fp32")
            taken.setdefault(strategy_words(memory), []).append(time.process_time() - begin)
    for memory, found in in_fp32:
        words = strategy_words(memory)
        yield Timing(name, words, cards.CPU.seconds(found.counted, TIMED_BATCH), min(taken[words][1:]))


def summarise(points: Sequence[Point]) -> dict[str, float | int]:
    """Errors in percent, and how many predictions are unsafe."""
    errors = np.array([abs(point.error) for point in points])
    lowest, highest = min(point.error for point in points), max(point.error for point in points)
    return {
        "points": len(points),
        "median_percent": round(100 * float(np.median(errors)), 3),
        "percentile_95_percent": round(100 * float(np.quantile(errors, 0.95)), 3),
        "lowest_percent": round(100 * lowest, 3),
        "highest_percent": round(100 * highest, 3),
        "unsafe": sum(point.predicted * (1 + cards.ALLOCATOR_SLACK) < point.measured for point in points),
    }


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's, of values that are all different."""
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def within_networks(timings: Sequence[Timing]) -> float:
    """Mean over networks of the correlation of the times of their strategies."""
    found = []
    for name in dict.fromkeys(timing.network for timing in timings):
        own = [timing for timing in timings if timing.network == name]
        if len(own) > 2:
            found.append(rank_correlation([t.predicted for t in own], [t.measured for t in own]))
    return float(np.mean(found)) if found else float("nan")


def summarise_all(points: Sequence[Point], timings: Sequence[Timing]) -> dict[str, Any]:
    followed = [
        replace(point, measured=point.allocated, predicted=point.predicted + point.workspace)
        for point in points
        if point.allocated is not None
    ]
    correlation = rank_correlation([t.predicted for t in timings], [t.measured for t in timings])
    return {
        "memory": summarise(points) if points else None,
        "memory_with_workspace_against_allocator": summarise(followed) if followed else None,
        "time": {
            "pairs": len(timings),
            "rank_correlation": round(correlation, 4),
            "mean_within_networks": round(within_networks(timings), 4),
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=1, help="steps of every strategy that are timed")
    parser.add_argument("--without", nargs="+", default=[], help="strategies that are left out")
    parser.add_argument("--time-only", action="store_true", help="leave memory out")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    load = load_average()
    found: list[Point | Timing] = []
    for name in options.networks:
        found += measure_network(name, options.rounds, time_only=options.time_only, without=options.without)
        points = [each for each in found if isinstance(each, Point)]
        timings = [each for each in found if isinstance(each, Timing)]
        summary = summarise_all(points, timings)
        print(name, json.dumps(summary, indent=1), flush=True)
        write_record(  # after each network: an hour is not lost
            options.output, "ledger_accuracy", words, ["torch"], threads=1, load_average_before=load, frames=FRAMES,
            summary=summary, points=[asdict(point) for point in points], timings=[asdict(each) for each in timings],
        )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
