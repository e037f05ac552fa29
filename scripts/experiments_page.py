"""The table of docs/experiments.md: what every network of the paper needs, as it is predicted.

python scripts/experiments_page.py        writes the table into the page (a quarter of an hour)
"""

from __future__ import annotations

from pathlib import Path

import torch
from tqdm import tqdm

from svtoolkit import composition
from svtoolkit.config import TrainConfig
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.planning.micro_batch import PROBE, largest_divisor, step_of
from svtoolkit.planning.model_survey import survey_network
from svtoolkit.system.processes import worker_processes

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
    "resnet152": "12 x 3", "revnet137": "1 x 3", "revnet197": "1 x 5", "df_revnet281": "2 x 5", "df_revnet377": "2 x 6",
    "df_resnet233": "22 x 4",
}  # fmt: skip
"""GPUs x days of their table VII."""

UTTERANCES = 1_092_009
"""Of VoxCeleb2 dev."""
CLASSES = 3 * 5994
"""Its speakers at three speeds; of fine-tuning, whose head is cut to a third, an upper bound."""
GPU_BYTES = 11 * 10**9
"""Of a 2080 Ti, on which they trained."""
TFLOPS = 7
"""Sustained: half of what a 2080 Ti can do in float32."""

HEAD = (
    "| `model=` | `experiment=` | micro-batch | peak, GiB | peak with 8 bits, GiB | GMAC a crop | EFLOP a run | "
    "GPU days, predicted | published: GPUs x days | fine-tuning: micro-batch | peak, GiB |"
)


def experiment_of(network: str) -> str:
    """The recipe that the paper trains a network with."""
    return "voxceleb_adamw" if network.startswith("df_") else "voxceleb"


def compose(network: str, experiment: str, *overrides: str) -> TrainConfig:
    words = [f"experiment={experiment}", f"model={network}", "exp_dir=x", "data.train=x", *overrides]
    config: TrainConfig = composition.load("train", words)
    return config


def needs(config: TrainConfig) -> tuple[int, str]:
    """The micro-batch that is predicted to fit, and the peak with it in GiB."""
    share = config.trainer.batch_size
    memory = predict_memory(step_of(config, PROBE, CLASSES))
    micro_batch = largest_divisor(memory, share, GPU_BYTES)
    return micro_batch, f"{memory.peak_of(micro_batch) / 2**30:.1f}"


def flops(config: TrainConfig, macs: float) -> float:
    """Of a run: two operations a multiply-accumulate, three passes a crop, four where activations are recomputed."""
    passes = 4 if NETWORKS[config.model.name].help in ("RevNet", "DF-RevNet") else 3
    return UTTERANCES * len(config.data.speeds) * config.trainer.epochs * 2 * passes * macs


def row(network: str) -> str:
    torch.set_num_threads(1)
    experiment = experiment_of(network)
    config = compose(network, experiment)
    (micro_batch, peak), (_, narrow_peak) = needs(config), needs(compose(network, experiment, narrow(config)))
    macs = survey_network(network, frames=config.data.crop_frames, num_bins=config.features.num_bins).macs
    work = flops(config, macs)
    cells = [
        f"`{network}`", f"`{experiment}`", micro_batch, peak, narrow_peak, f"{macs / 1e9:.1f}", f"{work / 1e18:.1f}",
        f"{work / (TFLOPS * 1e12) / 86400:.0f}", PUBLISHED.get(network, ""), *needs(compose(network, "voxceleb_lm")),
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def narrow(config: TrainConfig) -> str:
    """The override that gives a run 8-bit optimizer state."""
    return f"optim={config.optim.name}_8bit"


def main() -> None:
    with worker_processes(2, killed="a process was killed, probably because memory ran out") as workers:
        rows = list(tqdm(workers.map(row, NETWORKS_OF_THE_PAPER), total=len(NETWORKS_OF_THE_PAPER), unit="network"))
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    table = "\n".join([BEGIN, HEAD, "|---" * HEAD.count(" | ") + "|---|", *rows, END])
    PAGE.write_text(before + table + after, encoding="utf-8")


if __name__ == "__main__":
    main()
