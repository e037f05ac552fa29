"""How far gradients of memory=stash8 are off.

    python -m benchmarks.stash8 --train DIR --root DIR --output benchmarks/results/stash8.json

Of the weights of networks as they are initialised, and of two that were trained, on crops of real speech; the distance
of all of them together from those of stored activations, relative to their length, for a scale by utterance and
channel, for a scale by channel alone, and for inputs that are rounded in forward, too. Beside it stands how far float32
itself is from float64. What is learnt from them: ``benchmarks.stash8_learning``.
"""

from __future__ import annotations

import copy
import itertools
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.audio.files import read_audio
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.features.front_end import build_front_end
from svtoolkit.losses import build_head
from svtoolkit.memory import apply_strategy
from svtoolkit.models import build_model
from svtoolkit.models.registry import NETWORKS as REGISTRY
from svtoolkit.reversible import Chain, EightBits, by_block

REDIMNET2 = [(1, 1, 3, 4, 1), (2, 1, 0.75, 8, 1), (1, 1, 1, 8, 2), (2, 1, 1, 8, 1), (1, 1, 1, 8, 2), (2, 1, 1, 8, 1)]
SHORT = (1, 2, 1, 2)
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet10": {},
    "resnet34": {},
    "df_resnet56": {},
    "ecapa_tdnn_c512": {"channels": 64},
    "campplus": {},
    "eres2net34_base": {"width": 8, "blocks": SHORT},
    "eres2netv2": {"width": 8, "blocks": SHORT, "base_width": 32},
    "simam_resnet34": {"width": 8},
    "xvector": {"width": 64, "pooled": 96},
    "sb_resnet": {"base_width": 8, "blocks": SHORT},
    "titanet_small": {"base_width": 64, "map_channels": 96},
    "repvgg_b1g2": {"widths": (16, 16, 32, 32), "blocks": SHORT},
    "redimnet_b0": {"channels": 4, "stages": ((1, 1, 1, None), (2, 1, 2, 8), (2, 1, 3, 4))},
    "redimnet2_b4": {"channels": 4, "stages": REDIMNET2},
}
"""Network -> what makes it narrow."""
BINS, SIZE = 40, 64
TRAINED = {"num_bins": BINS, "embedding_dim": SIZE, "base_width": 8}
"""Of what is trained."""
AFTER_TRAINING = ("resnet10", "resnet34")
STEPS = 200
"""Of their training."""
CROPS = (32, 120)
"""A batch that is trained on: utterances, frames."""


class Speech:
    """Filter banks of a data directory, and a speaker class for each utterance."""

    def __init__(self, folder: Path, root: Path, utterances: Sequence[str] | None = None, *, bins: int = BINS) -> None:
        data, front_end = KaldiDir.read(folder, root=root), build_front_end(num_bins=bins, remove_mean=False)
        self.names = list(utterances or sorted(data.utt2spk))
        speakers = {speaker: number for number, speaker in enumerate(data.speakers)}
        self.labels = torch.tensor([speakers[data.utt2spk[name]] for name in self.names])
        self.classes = len(speakers)
        self.frames = []
        for name in self.names:
            samples = read_audio(data.audio_path(name), sample_rate=16000)
            self.frames.append(front_end(torch.from_numpy(np.asarray(samples, np.float32))[None])[0])

    @classmethod
    def joined(cls, parts: Sequence[Speech]) -> Speech:
        """All of their utterances; each speaker of each is a class."""
        whole = cls.__new__(cls)
        whole.names = [name for part in parts for name in part.names]
        whole.frames = [frames for part in parts for frames in part.frames]
        begins = itertools.accumulate((part.classes for part in parts), initial=0)
        whole.labels = torch.cat([part.labels + begin for part, begin in zip(parts, begins, strict=False)])
        whole.classes = sum(part.classes for part in parts)
        return whole

    def crops(self, positions: Sequence[int], length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(batch, length, bins) without their mean, and their classes; short utterances are repeated."""
        found = []
        for position in positions:
            frames = self.frames[position]
            frames = frames.repeat(-(-length // len(frames)), 1)
            begin = int(torch.randint(len(frames) - length + 1, (1,), generator=generator))
            crop = frames[begin : begin + length]
            found.append(crop - crop.mean(0))
        return torch.stack(found), self.labels[list(positions)]


def gradients(network: nn.Module, head: Any, frames: Tensor, labels: Tensor) -> Tensor:
    """Of all weights of the network, in one row, from a state that is put back."""
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    torch.manual_seed(0)
    loss = head(network(frames), labels).losses.mean()
    found = torch.autograd.grad(loss, [w for w in network.parameters() if w.requires_grad], allow_unused=True)
    for name, buffer in network.named_buffers():
        buffer.copy_(buffers[name])
    return torch.cat([gradient.flatten().double() for gradient in found if gradient is not None])


def use_scales(network: nn.Module, *, by_utterance: bool) -> None:
    apply_strategy(network, "store")
    planner = partial(by_block, stash=EightBits(by_utterance))
    for module in network.modules():
        if isinstance(module, Chain):
            module.planner = planner


def round_in_forward(network: nn.Module) -> None:
    """Every block reads its rounded input, whose gradient goes straight through."""

    def rounded(module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        stash, x = EightBits(), given[0]
        return (x + (stash.unpack(stash.pack(x.detach())) - x).detach(),)

    apply_strategy(network, "store")
    for module in network.modules():
        if isinstance(module, Chain):
            for block in module:
                block.register_forward_pre_hook(rounded)


def measure_errors(network: nn.Module, head: Any, frames: Tensor, labels: Tensor) -> dict[str, float]:
    """Distances from the gradient of stored activations, relative to its length."""
    apply_strategy(network, "store")
    stored = gradients(network, head, frames, labels)

    def gradient(change: Callable[[nn.Module], object]) -> Tensor:
        other = copy.deepcopy(network)
        change(other)
        dtype = next(other.parameters()).dtype
        return gradients(other, copy.deepcopy(head).to(dtype), frames.to(dtype), labels)

    changes: dict[str, Callable[[nn.Module], object]] = {
        "float64": lambda other: other.double(),
        "by_utterance": lambda other: use_scales(other, by_utterance=True),
        "by_channel": lambda other: use_scales(other, by_utterance=False),
        "in_forward": round_in_forward,
    }
    found = {name: gradient(change) for name, change in changes.items()}
    errors = {name: float(f"{float((other - stored).norm() / stored.norm()):.3g}") for name, other in found.items()}
    cosine = nn.functional.cosine_similarity(found["by_utterance"], stored, dim=0)
    return {**errors, "cosine": round(float(cosine), 4)}


def measure_network(name: str, speech: Speech, batch: int, length: int) -> dict[str, Any]:
    torch.manual_seed(1)
    network = REGISTRY.load(name)(
        num_bins=BINS, embedding_dim=SIZE, **{**REGISTRY[name].arguments, **NETWORKS[name]}
    ).train()
    return {"network": name, **measure_errors(network, new_head(speech), *any_crops(speech, batch, length))}


def new_head(speech: Speech) -> Any:
    head = build_head("aam", embedding_dim=SIZE, num_classes=speech.classes, margin=0.2, scale=32.0)
    head.margin = 0.2
    return head


def any_crops(speech: Speech, batch: int, length: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return speech.crops(torch.randperm(len(speech.names), generator=generator)[:batch].tolist(), length, generator)


def train(
    name: str, strategy: str, seed: int, speech: Speech, steps: int, batch: int, length: int, nudge: float = 0.0
) -> tuple[nn.Module, Any, float]:
    """A network, its head, and the mean loss of the last tenth of the steps.

    Args:
        nudge: relative noise on the weights at the start.
    """
    torch.manual_seed(seed)
    network, head = build_model(name, **TRAINED).train(), new_head(speech)
    apply_strategy(network, strategy)
    weights = [*network.parameters(), *head.parameters()]
    with torch.no_grad():
        for weight in weights:
            weight.mul_(1 + nudge * torch.randn_like(weight))
    return network, head, learn(network, head, seed, speech, steps, batch, length)


def learn(network: nn.Module, head: Any, seed: int, speech: Speech, steps: int, batch: int, length: int) -> float:
    """Train; the mean loss of the last tenth of the steps."""
    weights = [*network.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps, pct_start=0.1)
    generator, losses = torch.Generator().manual_seed(seed), []
    for step in range(steps):
        head.margin = 0.2 * min(1.0, 2 * step / steps)
        chosen = torch.randperm(len(speech.names), generator=generator)[:batch].tolist()
        frames, labels = speech.crops(chosen, length, generator)
        optimizer.zero_grad()
        loss = head(network(frames), labels).losses.mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return statistics.mean(losses[-max(1, steps // 10) :])


def format_table(errors: Sequence[dict[str, Any]]) -> str:
    keys = ("float64", "by_utterance", "by_channel", "in_forward")
    lines = [f"| network | {' | '.join(keys)} | cosine |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row['network']} | {' | '.join(f'{row[key]:.2g}' for key in keys)} | {row['cosine']:.3f} |"
        for row in errors
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--train", type=Path, required=True, help="data directory to train on")
    parser.add_argument("--root", type=Path, required=True, help="what relative paths are relative to")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), help="that are measured as initialised")
    parser.add_argument("--batch", type=int, default=8, help="crops")
    parser.add_argument("--frames", type=int, default=200, help="of a crop")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    load, speech = load_average(), Speech(options.train, options.root)
    errors = [measure_network(name, speech, options.batch, options.frames) for name in options.networks]
    for name in AFTER_TRAINING:
        network, head, _ = train(name, "store", 1, speech, STEPS, *CROPS)
        found = measure_errors(network, head, *any_crops(speech, options.batch, options.frames))
        errors.append({"network": f"{name}, trained", **found})
    print(format_table(errors))
    write_record(options.output, "stash8", words, ["torch"], threads=1, load_average_before=load, errors=errors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
