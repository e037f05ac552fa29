"""What only a GPU can show: 8-bit SGD by svtoolkit and by bitsandbytes, and what determinism costs.

    python -m benchmarks.gpu_costs --output benchmarks/results/gpu_costs.json

**8-bit SGD**: all optimizers step copies of the same weights by the same random gradients, contiguous ones and, as the
trainer has them, in channels_last. Then follow the distance between weights that should be alike, as a share of the
way that they have gone; the bytes of the state; and the time of a step, all in turns.

**Determinism**: whole training steps with `trainer.deterministic` true and false, in turns; whether gradients repeat
themselves bit for bit, and the allocator's peak.

On a CPU the first part runs alone, bitsandbytes by its own CPU code; what is left out is said, and stands in the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.machine import open_command, write_record
from benchmarks.memory_cuda import reported_peak
from benchmarks.quantisation import SGD, state_bytes
from benchmarks.step_time import compare_times, passes, synchronizer, time_in_turns
from benchmarks.training_step import BINS, FRAMES, STORE, TrainingStep, build_network
from svtoolkit.optim import build_optimizer
from svtoolkit.system.output import log_to_stdout

NETWORK = "resnet152"
BATCH = 16
PRECISIONS = ("fp32", "fp16")
NO_GPU = "determinism: its switches are cuDNN's, and the device is a CPU"
NO_BITSANDBYTES = "sgd_8bit by bitsandbytes: it is not installed; pip install 'bitsandbytes>=0.50'"

AS_SHIPPED, OURS, THEIRS, IN_32_BITS = "torch, 2048", "torch, 256", "bitsandbytes, 256", "32 bits"
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    IN_32_BITS: ("sgd", {}),
    AS_SHIPPED: ("sgd_8bit", {"backend": "torch", "block_size": 2048, "min_8bit_size": 4096}),
    OURS: ("sgd_8bit", {"backend": "torch", "block_size": 256, "min_8bit_size": 4096}),
    THEIRS: ("sgd_8bit", {"backend": "bitsandbytes", "block_size": 256, "min_8bit_size": 4096}),
}
"""Momentum without Nesterov, as bitsandbytes has it. In channels_last other values share a scale in the last two: those
that are neighbours by the shape, and those that are in memory."""


def left_out(device: torch.device) -> list[str]:
    """What cannot be measured on this machine, and why."""
    return [
        *([NO_GPU] if device.type == "cpu" else []),
        *([NO_BITSANDBYTES] if find_spec("bitsandbytes") is None else []),
    ]


def compare_eight_bit(
    name: str, steps: int, rounds: int, device: torch.device, *, channels_last: bool
) -> dict[str, Any]:
    """Distance after some steps, bytes and time of ``OPTIMIZERS`` over the weights of a network."""
    network = build_network(name, STORE, channels_last=channels_last, device=device)
    begin = [weight.detach() for weight in network.parameters()]
    chosen = {key: row for key, row in OPTIMIZERS.items() if key != THEIRS or find_spec("bitsandbytes")}
    weights = {key: [nn.Parameter(weight.clone()) for weight in begin] for key in chosen}
    optimizers = {
        key: build_optimizer(weights[key], optimizer, **SGD, **settings)
        for key, (optimizer, settings) in chosen.items()
    }
    generator = torch.Generator(device).manual_seed(0)
    for _ in range(steps):
        gradients = [1e-3 * torch.empty_like(weight).normal_(generator=generator) for weight in begin]
        for key, optimizer in optimizers.items():
            for weight, gradient in zip(weights[key], gradients, strict=True):
                weight.grad = gradient.clone()
            optimizer.step()
    values = sum(weight.numel() for weight in begin)
    pairs = [(IN_32_BITS, key) for key in chosen if key != IN_32_BITS] + [(OURS, THEIRS)] * (THEIRS in chosen)
    record: dict[str, Any] = {
        "bytes_per_parameter": {key: round(state_bytes(each) / values, 4) for key, each in optimizers.items()},
        "distance_by_way": {
            f"{one} | {other}": distance_by_way(begin, weights[one], weights[other]) for one, other in pairs
        },
        "layout_kept": {
            key: all(one.stride() == other.stride() for one, other in zip(weights[key], begin, strict=True))
            for key in chosen
        },
    }
    runs: dict[str, Callable[[], object]] = {key: each.step for key, each in optimizers.items()}
    record["time"] = compare_times(time_in_turns(runs, rounds, synchronizer(device)), IN_32_BITS)
    return record


def distance_by_way(begin: Sequence[Tensor], one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Norm of the difference of two lists of weights over that of the way that the first have gone."""
    apart, way = (
        sum(float((a - b).detach().double().square().sum()) for a, b in zip(one, others, strict=True))
        for others in (other, begin)
    )
    return float(f"{(apart / way) ** 0.5:.4g}")


def compare_determinism(
    name: str, rounds: int, device: torch.device, *, batch_size: int = BATCH, frames: int = FRAMES, classes: int = 17982
) -> dict[str, Any]:
    """Time of a training step, peak and repetition with `trainer.deterministic` true and false, by precision."""
    found: dict[str, Any] = {}
    for precision in PRECISIONS:
        step = TrainingStep(
            name, STORE, batch_size=batch_size, precision=precision, device=device, frames=frames, classes=classes
        )
        variants: dict[str, Callable[[], object]] = {
            "deterministic": partial(with_determinism, True, step),
            "free": partial(with_determinism, False, step),
        }
        found[precision] = compare_times(time_in_turns(variants, rounds, synchronizer(device)), "free")
        for key, run in variants.items():
            if device.type == "cuda":
                found[precision][key]["peak_bytes"] = reported_peak(run, device)
            found[precision][key]["gradients_repeat"] = with_determinism(
                key == "deterministic", partial(gradients_repeat, name, precision, batch_size, frames, device)
            )
    return found


def with_determinism(wanted: bool, run: Callable[[], Any]) -> Any:
    """Run under the switches that `trainer.deterministic` sets (training/setup.py); afterwards as before."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    try:
        cudnn.deterministic, cudnn.benchmark = wanted, not wanted
        return run()
    finally:
        cudnn.deterministic, cudnn.benchmark = before


def gradients_repeat(name: str, precision: str, batch_size: int, frames: int, device: torch.device) -> bool:
    """Whether the same batch gives the same gradients twice, bit for bit."""
    network = build_network(name, STORE, device=device)
    run = passes(network, torch.randn(batch_size, frames, BINS, device=device), precision)
    run()
    first = [weight.grad.clone() for weight in network.parameters() if weight.grad is not None]
    run()
    second = [weight.grad for weight in network.parameters() if weight.grad is not None]
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def format_tables(found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| weights | sgd | bytes a parameter | times the 32-bit step | distance | layout kept |",
        "|---|---|---|---|---|---|",
    ]
    for layout, record in found["eight_bit"].items():
        distances = record["distance_by_way"]
        for key, kept in record["layout_kept"].items():
            time, distance = record["time"][key].get("ratio_fastest", 1), distances.get(f"{IN_32_BITS} | {key}", 0)
            lines.append(f"| {layout} | {key} | {record['bytes_per_parameter'][key]} | {time} | {distance} | {kept} |")
        if f"{OURS} | {THEIRS}" in distances:
            lines.append(f"\n{layout}: the two of 256 are {distances[f'{OURS} | {THEIRS}']} apart\n")
    for precision, record in found.get("determinism", {}).items():
        cost = record["deterministic"]
        lines.append(
            f"{precision}: a deterministic step takes {cost['ratio_fastest']} times that of a free one; "
            f"gradients repeat: {cost['gradients_repeat']}, free: {record['free']['gradients_repeat']}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--network", default=NETWORK)
    parser.add_argument("--batch", type=int, default=BATCH, help="crops of a training step")
    parser.add_argument("--steps", type=int, default=50, help="of the optimizers before their weights are compared")
    parser.add_argument("--rounds", type=int, default=20, help="of each time, in turns")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(words)
    device = torch.device(options.device)
    missing = left_out(device)
    for line in missing:
        print(f"left out: {line}")
    found: dict[str, dict[str, Any]] = {"eight_bit": {}}
    with log_to_stdout():
        for layout in ("contiguous", "channels_last"):
            found["eight_bit"][layout] = compare_eight_bit(
                options.network, options.steps, options.rounds, device, channels_last=layout == "channels_last"
            )
    if device.type == "cuda":
        found["determinism"] = compare_determinism(options.network, options.rounds, device, batch_size=options.batch)
    print(format_tables(found))
    packages = ["torch", *(["bitsandbytes"] if find_spec("bitsandbytes") else [])]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    write_record(
        options.output,
        "gpu_costs",
        words,
        packages,
        device=name,
        left_out=missing,
        network=options.network,
        steps=options.steps,
        rounds=options.rounds,
        batch=options.batch,
        **found,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
