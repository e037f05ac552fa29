"""What reversing a trained ResNet costs, form by form, before any training, with new statistics, and fine-tuned.

    python -m benchmarks.reverse --root DIR --work DIR --output benchmarks/results/reverse.json

Narrow ResNets are trained on real speech, speakers of speechocean762 in three folds: two train, with librispeech_mini,
one is evaluated, every pair of its utterances a trial. WORK keeps the trained ones. Each is then reversed in several
forms with the same weights. Of each form: the mean cosine between its embeddings and those of the ResNet, and its equal
error rate; both once more when BatchNorm's running statistics have been found anew, by a few forward passes; and after
fine-tuning for a tenth of the epochs, beside the ResNet itself fine-tuned as much.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.audio.files import read_audio
from svtoolkit.checkpoints.reversal import rename
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.features.front_end import build_front_end
from svtoolkit.losses import build_head
from svtoolkit.memory import apply_strategy
from svtoolkit.models.resnet import build_resnet
from svtoolkit.models.reversed_resnet import build_reversed_resnet
from svtoolkit.reversible import MomentumSequence
from svtoolkit.scoring.metrics import equal_error_rate
from svtoolkit.system.allocator import freed_memory_kept

FOLDERS = ("speechocean762/train", "speechocean762/eval", "librispeech_mini/train")
EVALUATED, FOLDS = "so", 3
"""Speakers whose names begin so are divided among the folds; the others train in all."""
BINS, SIZE, BATCH, SHARE = 40, 128, 32, 10
EVALUATION_FRAMES = 250


class Recipe(NamedTuple):
    """A network, how long it is trained, and on crops of how many frames."""

    sizes: dict[str, Any]
    epochs: int
    frames: int


RECIPES = {
    "resnet34": Recipe({"block": "basic", "blocks": (3, 4, 6, 3), "width": 8, "stem_stride": (2, 1)}, 25, 150),
    **{
        name: Recipe({"block": "bottleneck", "blocks": blocks, "width": 8, "stem_stride": (2, 2)}, 20, 120)
        for name, blocks in (("resnet101", (3, 4, 23, 3)), ("resnet152", (3, 8, 36, 3)), ("resnet293", (10, 20, 64, 3)))
    },
}


@dataclass(frozen=True)
class Form:
    """How a network is reversed.

    Attributes:
        bits: of ``MomentumSequence``.
        step: of what a block adds; None: as in our networks, so that the change over a stage stays as much.
        linear: the ReLU is moved in front of the block, and nothing stands on the shortcut.
        statistics: it is evaluated with new statistics, too.
        tuned: it is fine-tuned, too.
    """

    bits: int
    step: float | None = None
    linear: bool = False
    statistics: bool = True
    tuned: bool = False


FORMS = {
    "8 bits": Form(8, statistics=False),
    "4 bits": Form(4, tuned=True),
    "2 bits": Form(2),
    "1 bit": Form(1, tuned=True),
    "leapfrog": Form(0, tuned=True),
    "two streams": Form(0, step=1.0, tuned=True),
    "4 bits, linear shortcut": Form(4, linear=True),
}


class Speech:
    """Features and speakers of all utterances, and which of them train in a fold."""

    def __init__(self, root: Path, fold: int) -> None:
        front_end = build_front_end(num_bins=BINS, remove_mean=False)
        self.frames: dict[str, Tensor] = {}
        self.speakers: dict[str, str] = {}
        for folder in FOLDERS:
            data = KaldiDir.read(root / folder, root=root)
            for name in sorted(data.utt2spk):
                samples = torch.from_numpy(np.asarray(read_audio(data.audio_path(name), sample_rate=16000), np.float32))
                self.frames[name], self.speakers[name] = front_end(samples[None])[0].half(), data.utt2spk[name]
        divided = sorted({speaker for speaker in self.speakers.values() if speaker.startswith(EVALUATED)})
        order = torch.randperm(len(divided), generator=torch.Generator().manual_seed(0)).tolist()
        held = {divided[place] for position, place in enumerate(order) if position % FOLDS == fold}
        self.trained = [name for name in self.frames if self.speakers[name] not in held]
        self.evaluated = [name for name in self.frames if self.speakers[name] in held]
        classes = {s: number for number, s in enumerate(sorted({self.speakers[name] for name in self.trained}))}
        self.labels = torch.tensor([classes[self.speakers[name]] for name in self.trained])
        self.classes = len(classes)

    def crop(self, name: str, length: int, begin: Callable[[int], int]) -> Tensor:
        """(length, bins) without its mean; short utterances are repeated."""
        whole = self.frames[name]
        whole = whole.repeat(-(-length // len(whole)), 1)
        first = begin(len(whole) - length + 1)
        found = whole[first : first + length].float()
        return found - found.mean(0)

    def batches(self, seed: int, length: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Without end."""
        generator = torch.Generator().manual_seed(seed)
        order: list[int] = []
        while True:
            if len(order) < BATCH:
                order = torch.randperm(len(self.trained), generator=generator).tolist()
            chosen, order = order[:BATCH], order[BATCH:]
            draw = lambda count: int(torch.randint(count, (1,), generator=generator))  # noqa: E731
            yield torch.stack([self.crop(self.trained[i], length, draw) for i in chosen]), self.labels[chosen]

    def rate(self, embeddings: Tensor) -> float:
        """Equal error rate in percent over all pairs of the evaluated utterances."""
        speakers = np.array([self.speakers[name] for name in self.evaluated])
        one, other = np.triu_indices(len(speakers), 1)
        scores = (embeddings @ embeddings.T).numpy()[one, other]
        return 100 * equal_error_rate(scores, speakers[one] == speakers[other])[0]


@torch.inference_mode()
def embed(network: nn.Module, speech: Speech) -> Tensor:
    """Embeddings of length 1 of what is evaluated."""
    network.eval()
    crops = [speech.crop(name, EVALUATION_FRAMES, lambda count: 0) for name in speech.evaluated]
    rows = [network(torch.stack(crops[begin : begin + BATCH])) for begin in range(0, len(crops), BATCH)]
    return nn.functional.normalize(torch.cat(rows))


def train(
    network: nn.Module, head: Any, speech: Speech, recipe: Recipe, steps: int, lr: float, seed: int, warm: bool
) -> None:
    """Steps of SGD with one cycle of the learning rate; ``warm``: the margin is full from the first step."""
    weights = [*network.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(weights, lr=lr, momentum=0.9, weight_decay=2e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps, pct_start=0.1)
    network.train()
    for step, (frames, labels) in zip(range(steps), speech.batches(seed, recipe.frames), strict=False):
        head.margin = 0.2 if warm else 0.2 * min(1.0, 2 * step / steps)
        optimizer.zero_grad()
        head(network(frames), labels).losses.mean().backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()
        schedule.step()


def steps_of(recipe: Recipe, speech: Speech) -> int:
    return recipe.epochs * len(speech.trained) // BATCH


def new_parts(name: str, speech: Speech) -> tuple[nn.Module, Any]:
    network = build_resnet(num_bins=BINS, embedding_dim=SIZE, **RECIPES[name].sizes)
    return network, build_head("aam", embedding_dim=SIZE, num_classes=speech.classes, margin=0.2, scale=32.0)


def trained(name: str, fold: int, speech: Speech, work: Path) -> dict[str, Any]:
    """States of network and head, from WORK where they are there."""
    path = work / f"{name}_{fold}.pt"
    if not path.exists():
        torch.manual_seed(fold)
        network, head = new_parts(name, speech)
        recipe = RECIPES[name]
        train(network, head, speech, recipe, steps_of(recipe, speech), 0.1, fold, warm=False)
        torch.save({"net": network.state_dict(), "head": head.state_dict()}, path)
    return torch.load(path, weights_only=True)


class LinearShortcut(nn.Module):
    """A block with its ReLU in front: F(relu(x)), ``scale`` times."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        x = x.relu()
        value = x
        for position, (conv, norm) in enumerate(self.block._layers()):
            value = norm(conv(value.relu() if position else value))
        return value * self.block.scale


def reversed_as(form: Form, name: str, network: nn.Module) -> nn.Module:
    """A network of the same weights."""
    sizes = RECIPES[name].sizes
    turned = build_reversed_resnet(num_bins=BINS, embedding_dim=SIZE, remainder_bits=form.bits, **sizes)
    turned.load_state_dict(rename(network.state_dict(), turned))
    for stage in turned.stages:
        sequence = stage[-1]
        if not isinstance(sequence, MomentumSequence):
            continue
        if form.step is not None:
            for block in sequence.units()[1:]:
                block.scale = form.step
        if form.linear:
            for position, block in enumerate(sequence.units()):
                sequence[position] = LinearShortcut(block)
            stage.append(nn.ReLU())
    return turned


@torch.no_grad()
def renew_statistics(network: nn.Module, speech: Speech, frames: int, passes: int = 20) -> None:
    """Running statistics as the plain average of a few batches."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    network.train()
    for _, (crops, _) in zip(range(passes), speech.batches(1, frames), strict=False):
        network(crops)
    for norm in norms:
        norm.momentum = 0.1


def measure(name: str, fold: int, forms: Sequence[str], root: Path, work: Path) -> list[dict[str, Any]]:
    """A row for the ResNet and for each form of it."""
    speech, recipe, rows = Speech(root, fold), RECIPES[name], []
    state = trained(name, fold, speech, work)
    network, head = new_parts(name, speech)
    network.load_state_dict(state["net"])
    original = embed(network, speech)

    def add(form: str, turned: nn.Module, *, statistics: bool, tuned: bool) -> None:
        row: dict[str, Any] = {"network": name, "fold": fold, "form": form}

        def evaluate(when: str) -> None:
            found = embed(turned, speech)
            cosine = float((found * original).sum(1).mean())
            row[when] = {"cosine": round(cosine, 4), "eer": round(speech.rate(found), 3)}

        evaluate("untrained")
        if statistics:
            renew_statistics(turned, speech, recipe.frames)
            evaluate("statistics")
        if tuned:
            if statistics:
                turned.load_state_dict(rename(state["net"], turned))
            head.load_state_dict(state["head"])
            train(turned, head, speech, recipe, steps_of(recipe, speech) // SHARE, 0.02, 100 + fold, warm=True)
            evaluate("tuned")
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)

    for form in forms:
        how = FORMS[form]
        turned = reversed_as(how, name, network)
        apply_strategy(turned, "store")
        add(form, turned, statistics=how.statistics, tuned=how.tuned)
    add("ResNet", network, statistics=False, tuned=True)
    return rows


def summarise(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the folds; change: of the error rate from that of the ResNet in the same folds, in percent of it."""
    found = []
    for name, form in dict.fromkeys((row["network"], row["form"]) for row in rows):
        own = [row for row in rows if (row["network"], row["form"]) == (name, form)]
        folds = [row["fold"] for row in own]
        originals = [row for row in rows if (row["network"], row["form"]) == (name, "ResNet") and row["fold"] in folds]
        base = np.mean([row["untrained"]["eer"] for row in originals])
        line: dict[str, Any] = {"network": name, "form": form, "folds": len(own)}
        for when in ("untrained", "statistics", "tuned"):
            values = [row[when] for row in own if when in row]
            if values:
                eer = np.mean([value["eer"] for value in values])
                cosine = np.mean([value["cosine"] for value in values])
                change = 100 * (eer / base - 1)
                line[when] = {"cosine": round(cosine, 4), "eer": round(eer, 2), "change": round(change, 1)}
        found.append(line)
    return found


def format_table(lines: Sequence[dict[str, Any]]) -> str:
    def cell(value: dict[str, float] | None) -> str:
        return "-" if value is None else f"{value['cosine']:.3f}, {value['eer']:.2f} % ({value['change']:+.1f})"

    table = ["| network | form | folds | untrained | new statistics | fine-tuned |", "|---|---|---|---|---|---|"]
    for line in lines:
        cells = (cell(line.get(when)) for when in ("untrained", "statistics", "tuned"))
        table.append(f"| {line['network']} | {line['form']} | {line['folds']} | {' | '.join(cells)} |")
    return "\n".join(table)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--root", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--work", type=Path, required=True, help="folder of trained networks and of finished folds")
    parser.add_argument(
        "--runs", nargs="*", default=[f"{n}:{f}" for n in RECIPES for f in range(FOLDS)], help="NAME:FOLD"
    )
    parser.add_argument("--forms", nargs="*", default=list(FORMS), help="beside the ResNet itself")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    load, rows = load_average(), []
    for run in options.runs:
        name, fold = run.split(":")
        done = options.work / f"{name}_{fold}.json"
        if not done.exists():
            with freed_memory_kept():
                found = measure(name, int(fold), options.forms, options.root, options.work)
            done.write_text(json.dumps(found), encoding="utf-8")
        rows += json.loads(done.read_text(encoding="utf-8"))
    summary = summarise(rows)
    print(format_table(summary))
    write_record(
        options.output, "reverse", words, ["torch"], threads=1, load_average_before=load, summary=summary, runs=rows
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
