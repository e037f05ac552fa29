"""What it saves a training step on a CPU that freed memory stays with the process.

    python -m benchmarks.allocator --output benchmarks/results/allocator.json

Forward and backward pass of a network under memory=store, in processes of their own: as glibc does it by itself, and
in ``svtoolkit.system.allocator.freed_memory_kept``, as `svt train` does it on a CPU. The two take turns. ``seconds`` is
the least of all steps but the first of each process, ``processor`` the same of the processor's time, ``peak`` the
largest resident memory, in MiB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.models import build_model
from svtoolkit.system.allocator import freed_memory_kept

NETWORKS = {"resnet10": (64, 150), "resnet34": (32, 200), "ecapa_tdnn_c512": (64, 200), "resnet152": (16, 100)}
"""Network -> crops and frames of a step."""
WAYS = ("usual", "kept")
STEPS = 4


def measure(network: str, crops: int, frames: int, way: str, threads: int) -> dict[str, float]:
    """In this process."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    module = build_model(network, num_bins=80, embedding_dim=256).train().to(memory_format=torch.channels_last)
    given = torch.randn(crops, frames, 80)
    walls, processors = [], []
    with freed_memory_kept() if way == "kept" else nullcontext():
        for _ in range(STEPS):
            begin, used = time.perf_counter(), time.process_time()
            module.zero_grad()
            module(given).square().mean().backward()
            walls.append(time.perf_counter() - begin)
            processors.append(time.process_time() - used)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": min(walls[1:]), "processor": min(processors[1:]), "peak": peak}


def compare(network: str, crops: int, frames: int, threads: int, turns: int) -> dict[str, Any]:
    """A row."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(turns):
        for way in WAYS:
            words = [network, str(crops), str(frames), way, str(threads)]
            run = subprocess.run(
                [sys.executable, "-m", "benchmarks.allocator", *words], check=True, capture_output=True, text=True
            )
            found[way].append(json.loads(run.stdout))
    least = {way: {key: min(each[key] for each in runs) for key in runs[0]} for way, runs in found.items()}
    return {
        "network": network, "crops": crops, "frames": frames, "threads": threads,
        **{f"{way}_{key}": round(value, 3) for way in WAYS for key, value in least[way].items()},
        **{f"times_{key}": round(least["usual"][key] / least["kept"][key], 3) for key in least["usual"]},
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args(words)
    rows = []
    load = load_average()
    for network in options.networks:
        for threads in options.threads:
            rows.append(compare(network, *NETWORKS[network], threads, options.turns))
            print(rows[-1], flush=True)
    write_record(options.output, "allocator", words, ["torch"], load=[load, load_average()], rows=rows)
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 6 and sys.argv[4] in WAYS:
        name, size, length, kind, count = sys.argv[1:]
        print(json.dumps(measure(name, int(size), int(length), kind, int(count))))
        sys.exit()
    sys.exit(main())
