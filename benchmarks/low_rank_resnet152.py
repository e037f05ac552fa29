"""The layer after the pooling of a ResNet152 (20480 x 256) at a quarter of its parameters: error rates on real speech.

    python -m benchmarks.low_rank_resnet152 --train DIR DIR --trials DIR --root DIR --work DIR \\
        --output benchmarks/results/low_rank_resnet152.json

Stage one trains the whole network; stage two goes on from it twice, on the same crops and with the learning rate
carried on (Kliegl et al. 2017, section 3.2.2): as it is, and with that layer at the rank, cut to what it makes of the
training utterances (``svtoolkit.compression.outputs``). Before stage two that is "cut"; "cut, by weights" is the
truncated SVD of the matrix instead, of which no stage two is trained.

What two CPU cores have no time for from nothing begins small: four bottleneck blocks are trained first, one a stage,
and the 46 others are put behind them with the scale of their last norm at zero, so that each hands on what it is given
(Net2Net: Chen, Goodfellow and Shlens, ICLR 2016). memory=recompute_norm, as not all of 24 GiB is for activations.
Interrupted, the same command resumes after the last part that is done, whose weights and embeddings are in ``--work``.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.machine import load_average, open_command, write_record
from benchmarks.stash8 import Speech
from svtoolkit.compression.factors import with_ranks
from svtoolkit.compression.outputs import cut_weights, outputs_of
from svtoolkit.compression.spectrum import Spectrum
from svtoolkit.config.optimizers import MuonConfig
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trials import Trials, read_trials
from svtoolkit.losses import build_head
from svtoolkit.losses.pairwise import AngularPrototypical
from svtoolkit.memory import apply_strategy
from svtoolkit.models import build_model
from svtoolkit.models.registry import NETWORKS
from svtoolkit.optim import build_optimizer, leave_to_adamw
from svtoolkit.registry import defaults
from svtoolkit.scoring.bootstrap import trial_speakers
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores
from svtoolkit.scoring.metrics import eer_from_rates, equal_error_rate
from svtoolkit.scoring.paired import compare_systems
from svtoolkit.system.allocator import freed_memory_kept
from svtoolkit.system.atomic import atomic_write

NETWORK: dict[str, Any] = {"num_bins": 80, "embedding_dim": 256}
LAYER = "embedding"
SHARE = 4
"""The layer has so many times fewer parameters as a product."""
SPEAKERS = 32
"""Of a step, with two crops each."""
FRAMES = 100
CALIBRATION = 200
"""Training utterances that the layer is cut to, about."""
RATES = {"small": (0.02, 0.0002), "deep": (0.003, 0.0002)}
"""Learning rate of Muon at the first step, after ``WARMUP``, and at the last, between which it falls exponentially."""
WARMUP = 10


def build(rank: int | None = None) -> nn.Module:
    ranks = {} if rank is None else {LAYER: rank}
    network = build_model("resnet152", **NETWORK, ranks=ranks).to(memory_format=torch.channels_last)
    apply_strategy(network, "recompute_norm", expansions=True)
    return network


def build_small() -> nn.Module:
    """The same with one block a stage."""
    settings = {**NETWORKS["resnet152"].arguments, **NETWORK, "blocks": (1, 1, 1, 1)}
    network: nn.Module = NETWORKS.load("resnet152")(**settings)
    return network.to(memory_format=torch.channels_last)


def grow(weights: dict[str, Tensor], network: nn.Module) -> None:
    """Give a deeper network the weights of a network of one block a stage; its other blocks hand on what they read."""
    for name, module in network.named_modules():
        if name.endswith("bn3"):
            nn.init.zeros_(module.weight)  # type: ignore[arg-type]  # torch says Tensor | Module
    network.load_state_dict({**network.state_dict(), **weights})


def step_of(weight: Tensor) -> float:
    """AdamW's rate for a weight of the layer after the pooling, as a share of Muon's rate.

    Each value of it moves by the rate in a step, so that a matrix of many inputs moves what it makes by as many times
    the rate: the rate falls with their number (Yang et al., "Tensor programs V", 2022). Muon, which moves all singular
    values alike, leaves a matrix that has no product of low rank near it.
    """
    return 0.05 * min(1.0, 256 / weight.shape[1]) if weight.dim() > 1 else 0.05


class Training:
    """What all parts share: crops that follow from the number of the step, a head, the pairwise term."""

    def __init__(self, speech: Speech) -> None:
        self.speech = speech
        self.of_class: list[list[int]] = [[] for _ in range(speech.classes)]
        for position, label in enumerate(speech.labels.tolist()):
            self.of_class[label].append(position)
        size = NETWORK["embedding_dim"]
        self.head: Any = build_head("aam", embedding_dim=size, num_classes=speech.classes, margin=0.2, scale=32.0)
        self.pairwise = AngularPrototypical(crops=2, scale=10.0, weight=1.0)

    def crops(self, step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(step)
        positions = []
        for label in torch.randperm(self.speech.classes, generator=generator)[:SPEAKERS].tolist():
            own = self.of_class[label]
            order = torch.randperm(len(own), generator=generator).tolist()
            positions += [own[order[0]], own[order[-1]]]
        return self.speech.crops(positions, FRAMES, generator)

    def run(self, network: nn.Module, steps: range, whole: range, kind: str) -> float:
        """Train on some steps of those of a schedule; the mean loss of the last tenth of them."""
        layer = list(network.get_submodule(LAYER).parameters())
        matrices = [each for each in network.train().parameters() if all(each is not other for other in layer)]
        others = [*self.head.parameters(), *self.pairwise.parameters()]
        optimizers = [
            build_optimizer([*matrices, *others], "muon", **defaults(MuonConfig)),
            torch.optim.AdamW([{"params": [each], "share": step_of(each)} for each in layer], weight_decay=0.0),
        ]
        leave_to_adamw(optimizers[0], [*network.get_submodule("stem.0").parameters(), *others])
        losses, begin = [], time.monotonic()
        for step in steps:
            done = (step - whole.start) / len(whole)
            first, last = RATES[kind]
            rate = first * (last / first) ** done * min(1.0, (step - whole.start + 1) / WARMUP)
            for group in [group for each in optimizers for group in each.param_groups]:
                group["lr"] = rate * group.get("share", 1.0)
            self.head.margin = 0.2 * (min(1.0, 2 * done) if kind == "small" else 1.0)
            frames, labels = self.crops(step)
            embeddings = network(frames)
            loss = self.head(embeddings, labels).losses.mean()
            loss = loss + self.pairwise(embeddings, labels).losses.mean()
            network.zero_grad()
            self.head.zero_grad()
            self.pairwise.zero_grad()
            loss.backward()
            for each in optimizers:
                each.step()
            losses.append(loss.item())
            if (step + 1) % 10 == 0:
                minutes = (time.monotonic() - begin) / 60
                print(f"{kind} step {step + 1} of {steps.stop}: loss {losses[-1]:.3f}, {minutes:.1f} min", flush=True)
        return statistics.mean(losses[-max(1, len(losses) // 10) :])


def embed(network: nn.Module, utterances: Sequence[Tensor]) -> np.ndarray:
    """Of whole utterances, (utterances, embedding_dim)."""
    network.eval()
    with torch.inference_mode():
        rows = [network((frames - frames.mean(0))[None])[0].numpy() for frames in utterances]
    return np.stack(rows)


def compare(tables: dict[str, np.ndarray], folder: Path, root: Path, names: list[str]) -> list[dict[str, Any]]:
    """Error rates of each system on the list and on all pairs; low rank against whole by a paired bootstrap."""
    speakers = KaldiDir.read(folder, root).utt2spk
    pairs = [(a, b, speakers[a] == speakers[b]) for a, b in itertools.combinations(names, 2)]
    rows = []
    for key, trials in (("list", read_trials(folder / "trials")), ("all pairs", Trials.of(pairs))):
        scores = {system: cosine_scores(EmbeddingTable(names, table), trials) for system, table in tables.items()}
        rates = {system: 100 * float(equal_error_rate(each, trials.target)[0]) for system, each in scores.items()}
        (found,) = compare_systems(
            [scores["low rank"], scores["whole"]], *trial_speakers(trials, speakers), trials.target, [eer_from_rates]
        )[0]
        whole = rates["whole"] or math.nan
        rows.append(
            {
                "trials": key, "targets": int(trials.target.sum()), "nontargets": int((~trials.target).sum()),
                **{system: round(rate, 3) for system, rate in rates.items()},
                "relative": round(100 * found.difference / whole, 4),
                "relative_interval": [round(100 * bound / whole, 4) for bound in found.interval],
            }
        )  # fmt: skip
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="data directories to train on")
    parser.add_argument("--trials", type=Path, required=True, help="data directory with trials, of other speakers")
    parser.add_argument("--root", type=Path, required=True, help="what relative paths are relative to")
    parser.add_argument("--work", type=Path, required=True, help="folder for the weights of each part")
    parser.add_argument("--steps", type=int, nargs=3, default=(400, 90, 45), help="small, stage one, stage two")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(words)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    options.work.mkdir(parents=True, exist_ok=True)
    training = Training(Speech.joined([Speech(each, options.root, bins=NETWORK["num_bins"]) for each in options.train]))
    trials = read_trials(options.trials / "trials")
    evaluated = Speech(options.trials, options.root, sorted(trials.utterances), bins=NETWORK["num_bins"])
    small, one, two = options.steps
    deep = range(small, small + one + two)
    size, inputs = NETWORK["embedding_dim"], build().get_submodule(LAYER).in_features
    rank = int(size * inputs) // (SHARE * int(size + inputs))
    losses: dict[str, float] = {}
    tables: dict[str, np.ndarray] = {}

    def part(name: str, network: nn.Module, steps: range, whole: range, kind: str) -> dict[str, Any]:
        """Its state, trained now or before."""
        path = options.work / f"{name.replace(' ', '_')}.pt"
        if not path.is_file():
            with freed_memory_kept():
                loss = training.run(network, steps, whole, kind)
            parts = {"network": network, "head": training.head, "pairwise": training.pairwise}
            state = {**{key: each.state_dict() for key, each in parts.items()}, "loss": loss}
            with atomic_write(path, "wb") as stream:
                torch.save(state, stream)
        state = torch.load(path, weights_only=True)
        network.load_state_dict(state["network"])
        training.head.load_state_dict(state["head"])
        training.pairwise.load_state_dict(state["pairwise"])
        table = path.with_suffix(".npy")
        if not table.is_file():
            np.save(table, embed(network, evaluated.frames))
        losses[name], tables[name] = round(state["loss"], 4), np.load(table)
        return dict(state)

    state = part("small", build_small(), range(small), range(small), "small")
    network = build()
    grow(state["network"], network)
    state = part("stage one", network, range(small, small + one), deep, "deep")
    nu = Spectrum.of(state["network"][f"{LAYER}.weight"]).trace_norm_coefficient
    second = range(small + one, deep.stop)
    network = build()
    network.load_state_dict(state["network"])
    part("whole", network, second, deep, "deep")
    training.head.load_state_dict(state["head"])
    training.pairwise.load_state_dict(state["pairwise"])
    network = build()
    network.load_state_dict(state["network"])
    with outputs_of({LAYER: network.get_submodule(LAYER)}) as found:
        embed(network, training.speech.frames[:: max(1, len(training.speech.frames) // CALIBRATION)])
    weights = {
        "cut, by weights": state["network"],
        "cut": cut_weights(state["network"], {LAYER: rank}, found=found),
    }
    for name, each in weights.items():
        network = build(rank=rank)
        network.load_state_dict(with_ranks(each, {LAYER: rank}))
        tables[name] = embed(network, evaluated.frames)
    part("low rank", network, second, deep, "deep")
    rows = compare(tables, options.trials, options.root, evaluated.names)
    hidden = {str(options.root): "DATA", str(options.work): "WORK"}
    for path, name in hidden.items():
        words = [word.replace(path, name) for word in words]
    write_record(
        options.output, "low_rank_resnet152", words, ["torch"], threads=options.threads, load_average=load_average(),
        layer=[size, inputs], rank=rank, parameters=[size * inputs, rank * (size + inputs)], nu=round(nu, 4),
        losses=losses, rows=rows,
    )  # fmt: skip
    print(*rows, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
