"""How little memory the best plan of a network takes in so much time, both counted.

    python -m benchmarks.plans --output benchmarks/results/plans.json

Bytes of the ledger an utterance of 200 frames in float32, and seconds of a step by the roofline of a 2080 Ti, in times
of that with stored activations (``memory=planned``, ``memory.times``). *Host*: inputs of blocks may wait in host memory
(``memory.offload=true``); *8 bits*: they may be kept in a byte a value (``memory.inexact=true``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.machine import open_command, write_record
from benchmarks.training_step import BINS, FRAMES
from svtoolkit.memory.strategies.planned import plan_of
from svtoolkit.models import build_model

NETWORKS = ("resnet152", "df_resnet233", "simam_resnet100", "eres2netv2", "redimnet_b6", "redimnet2_b6")
TIMES = (1.35, 1.45, 1.7)
WAYS = {
    "exact": {"inexact": False, "offload": False},
    "host": {"inexact": False, "offload": True},
    "host, 8 bits": {"inexact": True, "offload": True},
}


def find_plans(name: str, times: Sequence[float] = TIMES) -> dict[str, Any]:
    """GiB an utterance, and times of the stored step, of each way and each time allowed."""
    begin = time.process_time()
    network = build_model(name, num_bins=BINS)
    crops = {"gib_per_utterance": None, "frames": FRAMES, "num_bins": BINS, "precision": "fp32"}
    rows = []
    for way, settings in WAYS.items():
        for allowed in times:
            chosen = plan_of(network, times=allowed, **crops, **settings)
            rows.append({"way": way, "allowed": allowed, "gib": round(chosen.gib_per_utterance, 4),
                         "times": round(chosen.times, 3)})  # fmt: skip
    return {"network": name, "rows": rows, "processor_seconds": round(time.process_time() - begin, 1)}


def format_table(runs: Sequence[dict[str, Any]]) -> str:
    times = [row["allowed"] for row in runs[0]["rows"] if row["way"] == "exact"]
    heads = [f"{way}, {allowed:g}" for way in WAYS for allowed in times]
    lines = ["| network | " + " | ".join(heads) + " |", "|" + "---|" * (1 + len(heads))]
    for run in runs:
        found = {(row["way"], row["allowed"]): row["gib"] for row in run["rows"]}
        cells = [f"{found[way, allowed]:.4f}" for way in WAYS for allowed in times]
        lines.append(f"| {run['network']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, help="names of svt models")
    parser.add_argument("--times", nargs="+", type=float, default=TIMES, help="of the stored step, allowed")
    options = parser.parse_args(words)
    runs: list[dict[str, Any]] = []
    for name in options.networks:
        runs.append(find_plans(name, options.times))
        write_record(options.output, "plans", words, ["torch"], runs=runs)
    print(format_table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
