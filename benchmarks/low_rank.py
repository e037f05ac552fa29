"""Low rank on real speech: error rates against kept parameters, and what products of small batches take.

    python -m benchmarks.low_rank --train DIR --trials DIR --root DIR --output benchmarks/results/low_rank.json \\
        --figure docs/images/low_rank.svg

Stage one of a narrow network under the trace norm of all its larger matrices, under their L2 norm, and without a
penalty; stage two from the truncated SVD at several shares of the variance, without a penalty and with the learning
rate carried on, as Kliegl et al. 2017, section 3.2.2. Kinds share the crops of a seed. Before that, products of layers
at a quarter of their parameters against whole ones, in turns on one thread, by its processor time. Interrupted, the
same command resumes after the last run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.machine import command_line, load_average, open_command, runs_before, write_record
from benchmarks.stash8 import TRAINED, Speech, new_head
from benchmarks.stash8_learning import NETWORK, eer
from svtoolkit.compression.factors import with_ranks
from svtoolkit.compression.layers import LowRank, find_layers
from svtoolkit.compression.penalty import Penalty
from svtoolkit.compression.spectrum import Spectrum, choose_ranks
from svtoolkit.models import build_model

STRENGTHS = {"none": 0.0, "l2": 2e-2, "trace_norm": 2e-2}
"""Kind of stage one -> lambda of its penalty."""
MIN_VALUES = 2048
VARIANCES = (0.95, 0.85, 0.7)
CROPS = (32, 100)
"""Crops of a step, and their frames."""
RATES = (0.02, 0.0002)
"""Learning rate at the first and last step of both stages, between which it falls exponentially.

Where it begins at 0.1, the embedding layer of two factors falls to rank one whatever its penalty.
"""
WARMUP = 30

PRODUCTS = {
    "ResNet152, pooled to embedding": (256, 20480),
    "ResNet34, pooled to embedding": (256, 5120),
    "ECAPA-TDNN 1024, aggregation": (1536, 3072),
    "CAM++, pooled to embedding": (512, 1024),
}
"""(out, in) of layers."""
BATCHES = (1, 2, 3, 4)
ROUNDS = 40


def crops_of(step: int, seed: int, speech: Speech) -> tuple[Tensor, Tensor]:
    batch, length = CROPS
    generator = torch.Generator().manual_seed(1000 * seed + step)
    positions = torch.randint(len(speech.names), (batch,), generator=generator).tolist()
    return speech.crops(positions, length, generator)


def learn(
    network: nn.Module, head: Any, speech: Speech, seed: int, steps: range, total: int, penalty: Penalty | None = None
) -> float:
    """SGD over some of the steps; returns the mean loss of the last tenth of them."""
    weights = [*network.train().parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(weights, RATES[0], momentum=0.9, nesterov=True)
    losses = []
    for step in steps:
        rate = RATES[0] * (RATES[1] / RATES[0]) ** (step / total)
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / WARMUP)
        optimizer.zero_grad()
        head.margin = 0.2 * min(1.0, 2 * step / total)
        frames, labels = crops_of(step, seed, speech)
        loss = head(network(frames), labels).losses.mean()
        loss.backward()
        if penalty is not None:
            penalty.add_gradient()
        optimizer.step()
        losses.append(loss.item())
    return statistics.mean(losses[-max(1, len(losses) // 10) :])


def stage_one(kind: str, seed: int, speech: Speech, steps: int, total: int) -> tuple[dict[str, Tensor], Any]:
    """Weights of the network, whole, and the head."""
    torch.manual_seed(seed)
    network, head = build_model(NETWORK, **TRAINED), new_head(speech)
    layers = find_layers(network, ["*"], min_values=MIN_VALUES)
    if kind == "trace_norm":
        ranks = {name: min(layer.weight.flatten(1).shape) for name, layer in layers.items()}
        weights = with_ranks(network.state_dict(), ranks)
        network = build_model(NETWORK, **TRAINED, ranks=ranks)
        network.load_state_dict(weights)
    found: list[nn.Parameter] = []
    for name in layers:
        layer = network.get_submodule(name)
        found += layer.factors if isinstance(layer, LowRank) else [layer.weight]  # type: ignore[list-item]
    penalty = Penalty(found, STRENGTHS[kind]) if STRENGTHS[kind] else None
    learn(network, head, speech, seed, range(steps), total, penalty)
    return with_ranks(network.state_dict(), {}), head


def compare(
    kind: str, seed: int, speech: Speech, steps: tuple[int, int], rate_of: Callable[[nn.Module], float]
) -> dict[str, Any]:
    """A run of stage one, and one of stage two for each share of the variance."""
    total = sum(steps)
    weights, head = stage_one(kind, seed, speech, steps[0], total)
    whole = build_model(NETWORK, **TRAINED)
    whole.load_state_dict(weights)
    layers = find_layers(whole, ["*"], min_values=MIN_VALUES)
    spectra = {name: Spectrum.of(layer.weight) for name, layer in layers.items()}
    nu = {name: round(spectrum.trace_norm_coefficient, 4) for name, spectrum in spectra.items()}
    parameters = sum(parameter.numel() for parameter in whole.parameters())
    found: dict[str, Any] = {"kind": kind, "seed": seed, "nu": nu, "parameters": parameters, "stages": []}
    state = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    for variance in (None, *VARIANCES):
        ranks = {} if variance is None else choose_ranks(spectra, variance=variance)[0]
        network = build_model(NETWORK, **TRAINED, ranks=ranks)
        network.load_state_dict(with_ranks(weights, ranks))
        head.load_state_dict(state)
        row = {"variance": variance, "parameters": sum(parameter.numel() for parameter in network.parameters())}
        row["eer_cut"] = rate_of(network)
        learn(network, head, speech, seed, range(steps[0], total), total)
        found["stages"].append({**row, "eer": rate_of(network)})
    return found


def time_products(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Milliseconds of whole layers and of ones at a quarter of the parameters, and the median of their ratios."""
    rows = []
    for name, (outputs, inputs) in PRODUCTS.items():
        whole = nn.Linear(inputs, outputs).eval()
        rank = outputs * inputs // (4 * (outputs + inputs))
        low = LowRank(whole, rank).eval()
        for batch in BATCHES:
            x = torch.randn(batch, inputs)
            pairs = []
            with torch.inference_mode():
                for _ in range(rounds + 2):
                    pairs.append((_seconds(whole, x), _seconds(low, x)))
            ratios = [first / second for first, second in pairs[2:]]
            dense, product = (1000 * statistics.median(times) for times in zip(*pairs[2:], strict=True))
            rows.append(
                {"layer": name, "out": outputs, "in": inputs, "rank": rank, "batch": batch, "dense_ms": round(dense, 4),
                 "low_rank_ms": round(product, 4), "times_faster": round(statistics.median(ratios), 2)}
            )  # fmt: skip
    return rows


def _seconds(layer: nn.Module, x: Tensor, repeats: int = 20) -> float:
    begin = time.thread_time()
    for _ in range(repeats):
        layer(x)
    return (time.thread_time() - begin) / repeats


def summarise(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the seeds, kind by kind and share by share of the variance."""
    rows = []
    for kind in STRENGTHS:
        own = [run for run in runs if run["kind"] == kind]
        for number, variance in enumerate((None, *VARIANCES)) if own else ():
            stages = [run["stages"][number] for run in own]
            means = {key: round(statistics.mean(stage[key] for stage in stages), 2) for key in ("eer_cut", "eer")}
            pairs = zip(stages, own, strict=True)
            means["kept"] = round(statistics.mean(stage["parameters"] / run["parameters"] for stage, run in pairs), 3)
            means["nu"] = round(statistics.mean(statistics.mean(run["nu"].values()) for run in own), 3)
            rows.append({"kind": kind, "variance": variance, "seeds": len(own), **means})
    return rows


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """EER after stage two against kept parameters: a point a run, a line through the means."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "low_rank"
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for row_kind, colour in zip(STRENGTHS, ("#888888", "#1f77b4", "#d62728"), strict=True):
        own = [run for run in runs if run["kind"] == row_kind]
        points = [(100 * each["parameters"] / run["parameters"], each["eer"]) for run in own for each in run["stages"]]
        means = [(100 * row["kept"], row["eer"]) for row in summarise(runs) if row["kind"] == row_kind]
        label = {"none": "no penalty", "l2": "L2", "trace_norm": "trace norm"}[row_kind]
        axes.plot(*zip(*points, strict=True), ".", color=colour, alpha=0.5)
        axes.plot(*zip(*means, strict=True), "-o", color=colour, markersize=4, label=label)
    axes.set_xlabel("parameters kept, %")
    axes.set_ylabel("EER after stage two, %")
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--train", type=Path, required=True, help="data directory to train on")
    parser.add_argument("--trials", type=Path, required=True, help="data directory with trials")
    parser.add_argument("--root", type=Path, required=True, help="what relative paths are relative to")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind")
    parser.add_argument("--steps", type=int, nargs=2, default=(800, 400), help="of both stages")
    parser.add_argument("--figure", type=Path, default=None, help="SVG to draw")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    speech = Speech(options.train, options.root)
    lines = [line.split() for line in (options.trials / "trials").read_text(encoding="utf-8").splitlines()]
    trials = [(one, other, word == "target") for one, other, word in lines]
    evaluated = Speech(options.trials, options.root, sorted({name for pair in trials for name in pair[:2]}))
    runs = runs_before(options.output, command_line("low_rank", words))
    done = {(run["kind"], run["seed"]) for run in runs}
    products = time_products()
    steps = (options.steps[0], options.steps[1])

    def write() -> None:
        write_record(
            options.output, "low_rank", words, ["torch"], threads=1, load_average=load_average(),
            strengths=STRENGTHS, products=products, summary=summarise(runs), runs=runs,
        )  # fmt: skip

    write()
    for seed, kind in [(seed, kind) for seed in range(1, options.seeds + 1) for kind in STRENGTHS]:
        if (kind, seed) not in done:
            runs.append(compare(kind, seed, speech, steps, lambda network: eer(network, evaluated, trials)))
            write()
    for row in [*summarise(runs), *products]:
        print(row)
    if options.figure is not None:
        draw(runs, options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
