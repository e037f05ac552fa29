"""What memory strategies save and cost on ordinary networks, and how recursion grows with depth.

    python -m benchmarks.strategies --output benchmarks/results/strategies.json

Memory is that of `svt memory` with float32 and 200 frames, GiB for one more utterance. Time is that of a step, forward
and backward pass, in seconds of one processor: all strategies of a network in turn, the fastest of several rounds each,
as a multiple of stored activations; what is freed stays with the process, as in `svt train` on a CPU. The last table is
of chains of residual blocks of one width under memory=checkpoint memory.segments=recursive: how many of their inputs
are there at once, and the line in log2 of the depth that fits them best.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import load_average, open_command, write_record
from benchmarks.training_step import BINS, CLASSES, FRAMES
from svtoolkit.config import (
    CheckpointConfig,
    MemoryPredictionConfig,
    MemoryStrategyConfig,
    ModelConfig,
    RecomputeNormConfig,
    SGDConfig,
)
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models import build_model
from svtoolkit.models.blocks import BasicBlock
from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.reversible import Chain, by_halves
from svtoolkit.system.allocator import freed_memory_kept

NETWORKS = ("resnet34", "resnet152", "df_resnet56", "eres2netv2", "ecapa_tdnn_c1024", "redimnet2_b3")
STRATEGIES: dict[str, MemoryStrategyConfig] = {
    "store": MemoryStrategyConfig("store"),
    "recompute_norm": RecomputeNormConfig("recompute_norm"),
    "recompute_norm, expansions": RecomputeNormConfig("recompute_norm", expansions=True),
    "checkpoint, blocks": CheckpointConfig("checkpoint", segments="blocks"),
    "checkpoint, sqrt": CheckpointConfig("checkpoint", segments="sqrt"),
    "checkpoint, recursive": CheckpointConfig("checkpoint", segments="recursive"),
}
BATCH = 16
"""Utterances of the prediction."""
DEPTHS = (50, 100, 200, 400, 1000)


@dataclass(frozen=True)
class Cost:
    """One network under one strategy."""

    network: str
    strategy: str
    gib_per_utterance: float
    share_of_stored: float
    seconds: float
    times_stored: float


@dataclass(frozen=True)
class Depth:
    """A chain of so many blocks: inputs of blocks that are there at once, beyond what one block needs."""

    blocks: int
    inputs: float


def measure_network(name: str, rounds: int, batch: int) -> list[Cost]:
    gib = {}
    for strategy, memory in STRATEGIES.items():
        config = MemoryPredictionConfig(
            batch_size=BATCH,
            frames=FRAMES,
            num_bins=BINS,
            num_classes=CLASSES,
            device="cpu",
            model=ModelConfig(name),
            memory=memory,
            optim=SGDConfig(),
        )
        slope = predict_memory(config).bytes_per_utterance
        assert slope is not None, "a batch of more than one"
        gib[strategy] = slope / 2**30
    network = build_model(name).train()
    frames = torch.randn(batch, FRAMES, BINS)
    taken: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    for timed_round in range(-1, rounds):
        for strategy, memory in STRATEGIES.items():
            apply_strategy(network, **asdict(memory))
            seconds = _seconds(network, frames)
            if timed_round >= 0:
                taken[strategy].append(seconds)
    return [
        Cost(
            name,
            strategy,
            round(gib[strategy], 4),
            round(gib[strategy] / gib["store"], 3),
            round(min(taken[strategy]), 3),
            round(min(taken[strategy]) / min(taken["store"]), 3),
        )
        for strategy in STRATEGIES
    ]


def _seconds(network: torch.nn.Module, frames: Tensor) -> float:
    network.zero_grad(set_to_none=True)
    begin = time.process_time()
    network(frames).square().sum().backward()
    return time.process_time() - begin


def measure_depth(blocks: int, *, channels: int = 4, size: int = 400) -> Depth:
    """Highest memory of a step on the chain, less that of a chain of one block, in inputs of a block.

    On tensors without content; maps are so large that weights and their gradients do not count.
    """

    def highest(count: int) -> int:
        chain = Chain(*(BasicBlock(channels, channels) for _ in range(count)))
        chain.planner = by_halves
        x = torch.randn(8, channels, size, size)
        chain(x[:1]).sum().backward()  # gradients of the weights are there before
        with MemoryLedger() as ledger:
            gradients = [weight.grad for weight in chain.parameters() if weight.grad is not None]
            ledger.count([*chain.parameters(), *gradients])
            before = sum(ledger.live().values())
            chain(x).sum().backward()
        return max(accumulate(change.difference for change in ledger.changes)) - before

    with QuickFakeTensorMode():
        return Depth(blocks, round((highest(blocks) - highest(1)) / (8 * channels * size * size * 4), 2))


def fit(depths: Sequence[Depth]) -> dict[str, float]:
    """inputs = intercept + slope log2(blocks), by least squares, and the furthest that a depth lies from it."""
    logs = np.log2([depth.blocks for depth in depths])
    inputs = np.array([depth.inputs for depth in depths])
    slope, intercept = map(float, np.polyfit(logs, inputs, 1))
    furthest = float(np.abs(intercept + slope * logs - inputs).max())
    return {"intercept": round(intercept, 3), "slope": round(slope, 3), "furthest": round(furthest, 3)}


def format_tables(costs: Sequence[Cost], depths: Sequence[Depth], line: dict[str, float]) -> str:
    lines = ["| network | strategy | GiB an utterance | of stored | time, of stored |", "|---|---|---|---|---|"]
    for cost in costs:
        lines.append(
            f"| {cost.network} | {cost.strategy} | {cost.gib_per_utterance:.4f} | {100 * cost.share_of_stored:.0f} % "
            f"| {cost.times_stored:.2f} |"
        )
    lines += ["", "| blocks | inputs kept, recursive | log2(blocks) |", "|---|---|---|"]
    lines += [f"| {depth.blocks} | {depth.inputs:.1f} | {math.log2(depth.blocks):.1f} |" for depth in depths]
    lines.append(f"\ninputs = {line['intercept']} + {line['slope']} log2(blocks), within {line['furthest']}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, help="of the first table")
    parser.add_argument("--rounds", type=int, default=3, help="steps of every strategy that are timed")
    parser.add_argument("--batch", type=int, default=4, help="utterances of these steps")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    load = load_average()
    with freed_memory_kept():
        costs = [cost for name in options.networks for cost in measure_network(name, options.rounds, options.batch)]
    depths = [measure_depth(blocks) for blocks in DEPTHS]
    line = fit(depths)
    print(format_tables(costs, depths, line))
    write_record(
        options.output,
        "strategies",
        words,
        ["torch"],
        threads=1,
        load_average_before=load,
        rounds=options.rounds,
        batch=options.batch,
        costs=[asdict(cost) for cost in costs],
        recursive={"depths": [asdict(depth) for depth in depths], "fit": line},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
