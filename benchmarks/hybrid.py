"""What inverting blocks layer by layer saves and costs, and whether what is learnt from it is worse.

    python -m benchmarks.hybrid --train DIR --trials DIR --root DIR --seeds 0 --output benchmarks/results/hybrid.json
    python -m benchmarks.hybrid ... --rounds 0 --output benchmarks/results/hybrid_learning.json

Costs: GiB an utterance by `svt memory`'s ledger (float32, 200 frames, 80 bins) and processor time of a training step,
under each strategy, in turns. Training: the same network, crops and order of crops with stored activations and with
inverted ones, seed by seed; equal error rate on the trials.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.machine import load_average, open_command, write_record
from benchmarks.stash8 import BINS, SIZE, Speech, learn, new_head
from benchmarks.stash8_learning import eer
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.memory import apply_strategy
from svtoolkit.models import build_model
from svtoolkit.models.registry import NETWORKS as REGISTRY
from svtoolkit.planning.model_survey import measure_network_step

STRATEGIES = ("store", "reversible", "hybrid")
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "revnet57": ("revnet57", {}),
    "revnet57, in_place": ("revnet57", {"insides": "in_place"}),
    "revnet57, hybrid": ("revnet57", {"insides": "hybrid"}),
    "revnext57": ("revnext57", {}),
    "revnet137": ("revnet137", {}),
    "revnet137, in_place": ("revnet137", {"insides": "in_place"}),
    "revnext137": ("revnext137", {}),
}
TIMED = ("revnet57", "revnet57, in_place", "revnet57, hybrid", "revnext57")
TRAINED, WIDTH = "revnext_tiny", 8
CROPS = (16, 100)
"""A batch that is trained on: utterances, frames."""
FRAMES = 200


def strategies_of(network: nn.Module) -> list[str]:
    from svtoolkit.reversible import LayerwiseFunction

    inverted = any(isinstance(module, LayerwiseFunction) for module in network.modules())
    return [strategy for strategy in STRATEGIES if inverted or strategy != "hybrid"]


def time_steps(name: str, rounds: int, batch: int) -> dict[str, float]:
    """Seconds of processor time of the fastest step, one strategy after the other."""
    model, options = NETWORKS[name]
    torch.manual_seed(1)
    network = build_model(model, **options).train().to(memory_format=torch.channels_last)
    frames = torch.randn(batch, FRAMES, 80)
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for strategy in strategies_of(network):
            apply_strategy(network, strategy)
            begin = time.process_time()
            network(frames).sum().backward()
            seconds.setdefault(strategy, []).append(time.process_time() - begin)
            network.zero_grad()
    return {strategy: round(min(found), 3) for strategy, found in seconds.items()}


def measure_costs(rounds: int, batch: int) -> list[dict[str, Any]]:
    costs = []
    for name, (model, options) in NETWORKS.items():
        with torch.device("meta"):
            strategies = strategies_of(build_model(model, **options))
        gib = {
            strategy: round(measure_network_step(model, FRAMES, 80, strategy, **options) / 2**30, 4)
            for strategy in strategies
        }
        seconds = time_steps(name, rounds, batch) if name in TIMED else None
        costs.append({"network": name, "gib_per_utterance": gib, "seconds": seconds})
        print(costs[-1], file=sys.stderr, flush=True)
    return costs


def train(strategy: str, seed: int, speech: Speech, steps: int, batch: int, length: int) -> tuple[nn.Module, float]:
    """A narrow network, and the mean loss of the last tenth of the steps."""
    torch.manual_seed(seed)
    arguments = {**REGISTRY[TRAINED].arguments, "width": WIDTH, "slope": 0.1, "norm_floor": 0.1}
    network, head = REGISTRY.load(TRAINED)(num_bins=BINS, embedding_dim=SIZE, **arguments).train(), new_head(speech)
    apply_strategy(network, strategy)
    return network, learn(network, head, seed, speech, steps, batch, length)


def format_tables(costs: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> str:
    lines = [f"| network, GiB (time) | {' | '.join(STRATEGIES)} |", "|---|---|---|---|"]
    for row in costs:
        gib, seconds = row["gib_per_utterance"], row["seconds"]
        times = {s: f" ({seconds[s] / seconds['store']:.2f})" if seconds else "" for s in gib}
        cells = [f"{gib[s]:.4f}{times[s]}" if s in gib else "-" for s in STRATEGIES]
        lines.append(f"| {row['network']} | {' | '.join(cells)} |")
    lines += ["", "| seed | strategy | last loss | EER % |", "|---|---|---|---|"]
    lines += [f"| {run['seed']} | {run['strategy']} | {run['loss']:.3f} | {run['eer']:.2f} |" for run in runs]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--train", type=Path, required=True, help="data directory to train on")
    parser.add_argument("--trials", type=Path, required=True, help="data directory with trials")
    parser.add_argument("--root", type=Path, required=True, help="what relative paths are relative to")
    parser.add_argument("--rounds", type=int, default=2, help="times that a step is timed; 0: none is")
    parser.add_argument("--batch", type=int, default=2, help="utterances of a timed step")
    parser.add_argument("--seeds", type=int, default=3, help="runs under each strategy; 0: none")
    parser.add_argument("--steps", type=int, default=50, help="of a run")
    parser.add_argument("--utterances", type=int, default=600, help="that are trained on; a quarter is scored")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    load = load_average()
    costs = measure_costs(options.rounds, options.batch) if options.rounds else []
    runs: list[dict[str, Any]] = []

    def write() -> None:
        write_record(options.output, "hybrid", words, ["torch"], threads=1, load_average=load, costs=costs, runs=runs)

    write()
    for run in train_and_evaluate(options) if options.seeds else ():
        runs.append(run)
        print(run, file=sys.stderr, flush=True)
        write()
    print(format_tables(costs, runs))
    return 0


def train_and_evaluate(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Each seed with stored activations, then with inverted ones."""
    every = sorted(KaldiDir.read(options.train, root=options.root).utt2spk)
    speech = Speech(options.train, options.root, every[:: max(1, len(every) // options.utterances)])
    rows = [line.split() for line in (options.trials / "trials").read_text(encoding="utf-8").splitlines()]
    scored = sorted({name for one, other, _ in rows for name in (one, other)})
    chosen = set(scored[:: max(1, 4 * len(scored) // options.utterances)])
    trials = [(one, other, word == "target") for one, other, word in rows if {one, other} <= chosen]
    names = sorted({name for one, other, _ in trials for name in (one, other)})
    evaluated = Speech(options.trials, options.root, names)
    for seed in range(1, options.seeds + 1):
        for strategy in ("store", "hybrid"):
            network, loss = train(strategy, seed, speech, options.steps, *CROPS)
            rate = eer(network, evaluated, trials)
            yield {"seed": seed, "strategy": strategy, "loss": round(loss, 4), "eer": rate, "trials": len(trials)}


if __name__ == "__main__":
    sys.exit(main())
