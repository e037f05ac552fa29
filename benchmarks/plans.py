"""How little memory the best plan of a network takes in so much time, both counted.

    python -m benchmarks.plans --output benchmarks/results/plans.json

Bytes of the ledger an utterance of 200 frames in float32, and seconds of a step by the roofline of a 2080 Ti, in times
of that with stored activations (``memory=planned``, ``memory.times``). *Host*: inputs of blocks may wait in host memory
(``memory.offload=true``); *8 bits*: they may be kept in a byte a value (``memory.inexact=true``). *Bound*: of a network
of which several places read one map, what no exact plan without host memory falls below, whatever is done about these
maps: they and their gradients take nothing, and a gradient in parts takes no longer than one more evaluation of the
block and the gradient of stored activations.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from benchmarks.machine import open_command, write_record
from benchmarks.training_step import BINS, FRAMES
from svtoolkit.memory.planner.choice import BATCH, GIB, leanest
from svtoolkit.memory.planner.costs import Block, Costs, Option
from svtoolkit.memory.planner.surroundings import Crops, measure_network
from svtoolkit.memory.strategies.planned import plan_of
from svtoolkit.models import build_model
from svtoolkit.reversible import SharesValues, Sharing

NETWORKS = ("resnet152", "df_resnet233", "simam_resnet100", "eres2netv2", "redimnet_b6", "redimnet2_b6")
TIMES = (1.35, 1.45, 1.7)
WAYS = {
    "exact": {"inexact": False, "offload": False},
    "host": {"inexact": False, "offload": True},
    "host, 8 bits": {"inexact": True, "offload": True},
}
BOUND = "bound"


def find_plans(name: str, times: Sequence[float] = TIMES, bins: int = BINS) -> dict[str, Any]:
    """GiB an utterance, and times of the stored step, of each way and each time allowed."""
    begin = time.process_time()
    network = build_model(name, num_bins=bins)
    crops = {"gib_per_utterance": None, "frames": FRAMES, "num_bins": bins, "precision": "fp32"}
    rows = []
    for way, settings in WAYS.items():
        for allowed in times:
            chosen = plan_of(network, times=allowed, **crops, **settings)
            rows.append({"way": way, "allowed": allowed, "gib": round(chosen.gib_per_utterance, 4),
                         "times": round(chosen.times, 3)})  # fmt: skip
    if isinstance(network, SharesValues):
        rows += find_bounds(network, times, Crops(BATCH, FRAMES, bins), chosen.stored.seconds)
    seconds = round(time.process_time() - begin, 1)
    return {"network": name, "bins": bins, "rows": rows, "processor_seconds": seconds}


def find_bounds(network: nn.Module, times: Sequence[float], crops: Crops, stored: float) -> list[dict[str, Any]]:
    """Rows of the leanest plans of a network that is better than it can be; ``stored``: seconds of the stored step."""
    costs = idealised(measure_network(network, crops, sharing=Sharing())[0])
    rows = []
    for allowed in times:
        found = leanest(costs, allowed * stored)
        gib, took = found.peak / crops.batch / GIB, found.seconds / stored
        rows.append({"way": BOUND, "allowed": allowed, "gib": round(gib, 4), "times": round(took, 3)})
    return rows


def idealised(costs: Costs) -> Costs:
    """With nothing around the runs of blocks, and with gradients in groups that evaluate no layer once more."""
    runs = tuple(
        replace(
            run, before_forward=run.input, before_backward=0, between_forward=0, between_backward=0,
            blocks=tuple(map(_idealised_block, run.blocks)),
        )
        for run in costs.runs
    )  # fmt: skip
    return replace(costs, runs=runs, elsewhere=0)


def _idealised_block(block: Block) -> Block:
    again = min((o for o in block.options if o.recomputed and o.way == "store"), key=lambda o: o.seconds)

    def ideal(option: Option) -> Option:
        if option.way not in ("groups", "layers") or option.seconds <= again.seconds:
            return option
        return replace(
            option, seconds=again.seconds, seconds_again=again.seconds_again, seconds_at_end=again.seconds_at_end,
            gradient_seconds=again.gradient_seconds,
        )  # fmt: skip

    return replace(block, options=tuple(map(ideal, block.options)))


def format_table(runs: Sequence[dict[str, Any]]) -> str:
    times = [row["allowed"] for row in runs[0]["rows"] if row["way"] == "exact"]
    columns = [(way, allowed) for way in (*WAYS, BOUND) for allowed in times]
    heads = [f"{way}, {allowed:g}" for way, allowed in columns]
    lines = ["| network | bins | " + " | ".join(heads) + " |", "|" + "---|" * (2 + len(heads))]
    for run in runs:
        found = {(row["way"], row["allowed"]): row["gib"] for row in run["rows"]}
        cells = [f"{found[column]:.4f}" if column in found else "-" for column in columns]
        lines.append(f"| {run['network']} | {run['bins']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, help="names of svt models")
    parser.add_argument("--times", nargs="+", type=float, default=TIMES, help="of the stored step, allowed")
    parser.add_argument("--bins", nargs="+", type=int, default=(BINS,), help="of the features")
    options = parser.parse_args(words)
    runs: list[dict[str, Any]] = []
    for name, bins in itertools.product(options.networks, options.bins):
        runs.append(find_plans(name, options.times, bins))
        write_record(options.output, "plans", words, ["torch"], runs=runs)
    print(format_table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
