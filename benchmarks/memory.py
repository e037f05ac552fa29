"""Memory and time of a training step: every network of the paper's tables, stored, checkpointed and reversible.

    python -m benchmarks.memory --output benchmarks/results/memory.json

What the ledger predicts on fake tensors (GiB per utterance, breakdown of the peak, largest batch, live memory over a
step), and the time of steps with real arithmetic on one thread. `benchmarks/gpu.sh` measures the same on a GPU.

The file is written after each network of each part. What it holds of other networks and parts stays, so that a long
list can be measured in several calls; every record names the run that made it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import memory_ledger, step_time
from benchmarks.machine import command_line, describe_machine
from benchmarks.memory_summary import format_tables, summarise
from benchmarks.published import PUBLISHED, optimizer_of
from benchmarks.training_step import BINS, CLASSES, FRAMES, is_reversible
from svtoolkit.errors import UserError
from svtoolkit.models import list_models
from svtoolkit.system.atomic import atomic_write

BUDGET_GIB = 9.2
"""What an 11 GB GPU leaves for tensors, context and workspaces apart: about what the paper's stored ResNets need at
the largest batches that it publishes of them, by the ledger."""


@dataclass(frozen=True)
class Part:
    """One kind of measurement.

    Attributes:
        networks: measured unless others are named.
        measure: name of a network -> record.
        accepts: whether a named network can be measured.
    """

    networks: Collection[str]
    measure: Callable[[str], dict[str, Any]]
    accepts: Callable[[str], bool] = lambda name: True


def parts_of(options: argparse.Namespace) -> dict[str, Part]:
    """The parts of a run by name, in order."""

    def batches(name: str) -> dict[str, Any]:
        published = PUBLISHED[name].batch if name in PUBLISHED else None
        return memory_ledger.largest_batches(name, optimizer_of(name), published, options.budget_gib)

    return {
        "ledger": Part(PUBLISHED, memory_ledger.memory_per_utterance),
        "breakdown": Part(memory_ledger.BREAKDOWNS, memory_ledger.breakdown, memory_ledger.BREAKDOWNS.__contains__),
        "timeline": Part(memory_ledger.TIMELINE, memory_ledger.timeline, is_reversible),
        "largest_batch": Part(PUBLISHED, batches),
        "step_time": Part(
            step_time.TIMED, partial(step_time.compare_strategies, rounds=options.rounds, frames=options.frames)
        ),
    }


def chosen_tasks(options: argparse.Namespace, parts: dict[str, Part]) -> list[tuple[str, str]]:
    """Part and network of each measurement, in order.

    Raises:
        UserError: a part or network that there is not.
    """
    names = options.parts.split(",") if options.parts else list(parts)
    for name in names:
        if name not in parts:
            raise UserError(f"--parts: there is no part {name!r}; expected {', '.join(parts)}")
    networks = options.networks.split(",") if options.networks else None
    for network in networks or ():
        if network not in list_models():
            raise UserError(f"--networks: there is no network {network!r}; expected some of {', '.join(list_models())}")
    tasks = []
    for name in names:
        part = parts[name]
        wanted = part.networks if networks is None else filter(part.accepts, networks)
        tasks += [(name, network) for network in wanted]
    return tasks


def read_document(path: Path) -> dict[str, Any]:
    """What an earlier run wrote, or an empty document.

    Raises:
        UserError: the file is something else.
    """
    if not path.exists():
        return {"runs": [], "parts": {}, "summary": {}}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict) or not {"runs", "parts", "summary"} <= document.keys():
        raise UserError(f"{path}: is not what this benchmark wrote; choose another --output, or remove the file")
    return document


def write_document(path: Path, document: dict[str, Any]) -> None:
    with atomic_write(path) as stream:
        json.dump(document, stream, indent=1)
        stream.write("\n")


def measure(options: argparse.Namespace, command: str) -> dict[str, Any]:
    """Measure what is asked for and write after each network; returns the whole document."""
    parts = parts_of(options)
    tasks = chosen_tasks(options, parts)
    document = read_document(options.output)
    records = document["parts"]
    if options.only_missing:
        tasks = [(part, network) for part, network in tasks if network not in records.get(part, {})]
    deadline = time.monotonic() + options.seconds
    document["runs"].append(describe_run(options, command))
    for position, (part, network) in enumerate(tasks):
        if time.monotonic() > deadline:
            print(f"{options.seconds:g} s are over: {len(tasks) - position} of {len(tasks)} left to --only-missing")
            break
        begin, load = time.perf_counter(), os.getloadavg()[0]
        record = parts[part].measure(network)
        records.setdefault(part, {})[network] = record | {
            "run": len(document["runs"]) - 1,
            "seconds": round(time.perf_counter() - begin, 1),
            "load_average": [round(load, 1), round(os.getloadavg()[0], 1)],
        }
        document["summary"] = summarise(records)
        write_document(options.output, document)
        print(f"{part}: {network}, {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    return document


def describe_run(options: argparse.Namespace, command: str) -> dict[str, Any]:
    return {
        "command": command,
        "machine": describe_machine("torch"),
        "threads": torch.get_num_threads(),
        "frames": FRAMES,
        "bins": BINS,
        "classes": CLASSES,
        "budget_gib": options.budget_gib,
    }


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write or to add to")
    parser.add_argument("--networks", help="names with commas between them; default: those of each part")
    parser.add_argument("--parts", help="names with commas between them; default: all")
    parser.add_argument("--only-missing", action="store_true", help="leave out what the file holds already")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing new after so long")
    parser.add_argument("--rounds", type=int, default=7, help="times that a step is timed")
    parser.add_argument("--frames", type=int, default=FRAMES, help="of an utterance in the part step_time")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--budget-gib", type=float, default=BUDGET_GIB, help="for the ledger's largest batch")
    return parser.parse_args(words)


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(words)
    torch.set_num_threads(options.threads)
    try:
        document = measure(options, command_line("memory", words))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(format_tables(document["parts"], document["summary"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
