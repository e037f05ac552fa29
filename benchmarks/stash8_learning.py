"""Whether what is learnt under memory=stash8 is worse: equal error rates over seeds, on real speech.

    python -m benchmarks.stash8_learning --train DIR --trials DIR --root DIR \\
        --output benchmarks/results/stash8_learning.json

A narrow network, the same crops in the same order, with stored activations, under memory=stash8, and with stored
activations from weights that are nudged by a millionth, seed by seed. The nudge shows how far two runs of one seed come
apart that differ by rounding alone. Interrupted, the same command resumes after the last run that is done.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.machine import command_line, open_command, runs_before, write_record
from benchmarks.stash8 import CROPS, Speech, train
from svtoolkit.scoring.metrics import equal_error_rate

KINDS = {"store": ("store", 0.0), "stash8": ("stash8", 0.0), "nudged": ("store", 1e-6)}
"""What is compared, with the first: memory strategy, relative noise on the weights at the start."""
NETWORK = "resnet10"


def eer(network: nn.Module, speech: Speech, trials: Sequence[tuple[str, str, bool]]) -> float:
    """In percent, by the cosine of embeddings of whole utterances."""
    network.eval()
    with torch.inference_mode():
        rows = {
            name: nn.functional.normalize(network((frames - frames.mean(0))[None])[0], dim=0)
            for name, frames in zip(speech.names, speech.frames, strict=True)
        }
    network.train()
    scores = np.array([float(rows[one] @ rows[other]) for one, other, _ in trials])
    return round(100 * equal_error_rate(scores, np.array([target for *_, target in trials]))[0], 2)


def compare(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """EER over the seeds, and its differences to the first kind, seed by seed: mean and deviation (of a sample)."""
    rates = {(run["kind"], run["seed"]): run["eer"] for run in runs}
    first, found = next(iter(KINDS)), []
    for kind in KINDS:
        seeds = [seed for name, seed in rates if name == kind and (first, seed) in rates]
        if not seeds:
            continue
        measured = {"eer": [rates[kind, seed] for seed in seeds]}
        if kind != first:
            measured["difference"] = [rates[kind, seed] - rates[first, seed] for seed in seeds]
        row: dict[str, Any] = {"kind": kind, "seeds": len(seeds)}
        for key, values in measured.items():
            row[f"{key}_mean"] = round(statistics.mean(values), 3)
            row[f"{key}_std"] = round(statistics.stdev(values), 3) if len(values) > 1 else None
        found.append(row)
    return found


def format_table(runs: Sequence[dict[str, Any]]) -> str:
    lines = ["| seed | kind | last loss | EER % |", "|---|---|---|---|"]
    lines += [f"| {run['seed']} | {run['kind']} | {run['loss']:.3f} | {run['eer']:.2f} |" for run in runs]
    return "\n".join([*lines, "", *map(str, compare(runs))])


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--train", type=Path, required=True, help="data directory to train on")
    parser.add_argument("--trials", type=Path, required=True, help="data directory with trials")
    parser.add_argument("--root", type=Path, required=True, help="what relative paths are relative to")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind")
    parser.add_argument("--steps", type=int, default=1000, help="of a run")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    speech = Speech(options.train, options.root)
    rows = [line.split() for line in (options.trials / "trials").read_text(encoding="utf-8").splitlines()]
    trials = [(one, other, word == "target") for one, other, word in rows]
    names = sorted({name for one, other, _ in trials for name in (one, other)})
    evaluated = Speech(options.trials, options.root, names)
    runs = runs_before(options.output, command_line("stash8_learning", words))
    done = {(run["kind"], run["seed"]) for run in runs}
    seeds = range(1, options.seeds + 1)
    pairs = [(kind, seed) for seed in seeds for kind in KINDS if kind != "nudged"]
    for kind, seed in [*pairs, *(("nudged", seed) for seed in seeds)]:
        if (kind, seed) in done:
            continue
        strategy, nudge = KINDS[kind]
        network, _, loss = train(NETWORK, strategy, seed, speech, options.steps, *CROPS, nudge)
        runs.append({"seed": seed, "kind": kind, "loss": round(loss, 4), "eer": eer(network, evaluated, trials)})
        write_record(
            options.output, "stash8_learning", words, ["torch"], threads=1, runs=runs, comparison=compare(runs)
        )
    print(format_table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
