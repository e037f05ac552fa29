"""The table of docs/experiments.md: what every network of the paper needs, as it is predicted.

python scripts/experiments_page.py        writes the table into the page (a quarter of an hour)
"""

from __future__ import annotations

from pathlib import Path

import torch

from svtoolkit import composition
from svtoolkit.config import TrainConfig
from svtoolkit.crops.batch_size import wanted_batch_size
from svtoolkit.planning.run_forecast import GPU_BYTES, GPU_RATE, SECONDS_A_DAY, RunForecast, forecast_run
from svtoolkit.system.processes import worker_processes
from svtoolkit.system.progress import show_progress

PAGE = Path(__file__).resolve().parents[1] / "docs" / "experiments.md"
BEGIN, END = "<!-- begin: scripts/experiments_page.py -->", "<!-- end -->"

NETWORKS_OF_THE_PAPER = """
    resnet34 revnet46 revnet57 resnet101 revnet126 revnet137 revnet140 revnet155
    resnet152 revnet178 revnet197 revnet230 revnet245
    df_resnet56 df_revnet66 df_revnet89 df_resnet110 df_revnet126 df_revnet149
    df_resnet179 df_revnet258 df_revnet281 df_resnet233 df_revnet354 df_revnet377
""".split()
"""Liu & Qian, tables V and VI."""

PUBLISHED = {
    "resnet101": "9 x 2", "revnet137": "1 x 3", "resnet152": "12 x 3", "revnet197": "1 x 5", "df_resnet179": "19 x 3",
    "df_revnet281": "2 x 5", "df_resnet233": "22 x 4", "df_revnet377": "2 x 6",
}  # fmt: skip
"""GPUs x days of their table VII."""

UTTERANCES = 1_092_009
"""Of VoxCeleb2 dev."""
CLASSES = 3 * 5994
"""Its speakers at three speeds; of fine-tuning, whose head is cut to a third, an upper bound."""
HEAD = (
    "| `model=` | `experiment=` | micro-batch | peak, GiB | peak with 8 bits, GiB | GFLOP a crop | EFLOP a run | "
    "GPU days, predicted | published: GPUs x days | fine-tuning: micro-batch | peak, GiB |"
)


def experiment_of(network: str) -> str:
    """The recipe that the paper trains a network with."""
    return "voxceleb_adamw" if network.startswith("df_") else "voxceleb"


def compose(network: str, experiment: str, *overrides: str) -> TrainConfig:
    words = [f"experiment={experiment}", f"model={network}", "exp_dir=x", "data.train=x", *overrides]
    config: TrainConfig = composition.load("train", words)
    return config


def forecast(config: TrainConfig) -> RunForecast:
    """Of a run on the corpus, on one GPU."""
    batch_size = wanted_batch_size(config.trainer)
    steps = UTTERANCES * len(config.data.speeds) * len(config.data.warps) // batch_size * config.trainer.epochs
    return forecast_run(config, steps, batch_size, CLASSES)


def gib(predicted: RunForecast) -> str:
    return f"{predicted.peak_bytes(GPU_BYTES) / 2**30:.1f}"


def row(network: str) -> str:
    torch.set_num_threads(1)
    experiment = experiment_of(network)
    config = compose(network, experiment)
    run, tuning = forecast(config), forecast(compose(network, "voxceleb_lm"))
    cells = [
        f"`{network}`", f"`{experiment}`", run.micro_batch(GPU_BYTES), gib(run),
        gib(forecast(compose(network, experiment, narrow(config)))), f"{run.operations / 1e9:.0f}",
        f"{run.all_operations / 1e18:.1f}", f"{run.seconds(GPU_RATE) / SECONDS_A_DAY:.0f}",
        PUBLISHED.get(network, ""), tuning.micro_batch(GPU_BYTES), gib(tuning),
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def narrow(config: TrainConfig) -> str:
    """The override that gives a run 8-bit optimizer state."""
    return f"optim={config.optim.name}_8bit"


def main() -> None:
    rows = []
    with (
        worker_processes(2, killed="a process was killed, probably because memory ran out") as workers,
        show_progress("experiments", len(NETWORKS_OF_THE_PAPER), "network") as progress,
    ):
        for line in workers.map(row, NETWORKS_OF_THE_PAPER):
            rows.append(line)
            progress.update()
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    table = "\n".join([BEGIN, HEAD, "|---" * HEAD.count(" | ") + "|---|", *rows, END])
    PAGE.write_text(before + table + after, encoding="utf-8")


if __name__ == "__main__":
    main()
