"""What eight bits cost and save: rounding error of the map, memory and time of the optimizers.

    python -m benchmarks.quantisation --output benchmarks/results/quantisation.json

First, normal values are coded block by block and decoded again, by the dynamic map and by two maps of 256 entries that
are best at something: Lloyd-Max (Lloyd 1982), made for values divided by the largest of their block, has the least mean
square error there is, and equal steps have the least worst error. Without blocks, Lloyd-Max is the best quantiser of
normal values as such. Errors are in standard deviations of the values.

Then every optimizer makes steps over the parameters of a ResNet152, all of them in turn in every round, so that a busy
machine slows them alike; the figure is the fastest round. On the CPU it is the processor time of one thread, which
other work on the machine hardly lengthens. SGD is without Nesterov, which bitsandbytes has not.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.models import build_model
from svtoolkit.optim import build_optimizer
from svtoolkit.optim.dynamic_map import dequantise, quantise

LEVELS = 256
BLOCK_SIZES = (256, 2048)
VALUES = 2**20  # coded and decoded; eight times as many teach Lloyd-Max
SWEEPS = 2000
NETWORK = "resnet152"

SGD: dict[str, Any] = {"lr": 1e-4, "weight_decay": 1e-4, "momentum": 0.9, "nesterov": False}
ADAMW: dict[str, Any] = {"lr": 1e-4, "weight_decay": 0.05, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


@dataclass(frozen=True)
class Rounding:
    """Error of a quantiser, and how many times that of Lloyd-Max at the same block size it is."""

    quantiser: str
    block_size: int | None
    mean_error: float
    root_mean_square_error: float
    worst_error: float
    times_mean: float
    times_root_mean_square: float
    times_worst: float


@dataclass(frozen=True)
class Optimizer:
    """Memory of the state, and time of a step as a multiple of that of the 32-bit one."""

    optimizer: str
    backend: str
    block_size: int | None
    bytes_per_parameter: float
    state_share: float
    fastest_ms: float
    median_ms: float
    times_slower: float


def normal_values(count: int, seed: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def lloyd_max(values: Tensor, weights: Tensor) -> Tensor:
    """Entries (256,) of least weighted mean square error over float64 values (n,): Lloyd's method I.

    It begins with the entries as dense as the cube root of the density (Panter & Dite 1951), near the best.
    """
    values, order = values.sort()
    weights = weights[order]
    zero = torch.zeros(1, dtype=torch.float64)
    weight, moment = (torch.cat([zero, terms.cumsum(0)]) for terms in (weights, weights * values))
    counts = torch.histogram(values, bins=4 * LEVELS, weight=weights)
    density = counts.hist.pow(1 / 3).cumsum(0)
    places = torch.linspace(0, 1, LEVELS + 2, dtype=torch.float64)[1:-1] * density[-1]
    entries = counts.bin_edges[torch.searchsorted(density, places).clamp(max=4 * LEVELS - 1)]
    entries = entries + torch.arange(LEVELS, dtype=torch.float64) * 1e-12  # none twice
    for _ in range(SWEEPS):
        ends = torch.searchsorted(values, (entries[1:] + entries[:-1]) / 2)
        ends = torch.cat([torch.tensor([0]), ends, torch.tensor([len(values)])])
        inside = weight[ends].diff()
        entries = torch.where(inside > 0, moment[ends].diff() / inside.clamp(min=1e-300), entries)
    return entries.sort().values


def round_by(entries: Tensor, values: Tensor) -> Tensor:
    """The entry nearest to each float64 value."""
    return entries[torch.bucketize(values, (entries[1:] + entries[:-1]) / 2)]


def measure_rounding() -> list[Rounding]:
    values, lesson = normal_values(VALUES, seed=1), normal_values(8 * VALUES, seed=2).double()
    rows = _rows(None, {"Lloyd-Max": round_by(lloyd_max(lesson, torch.ones_like(lesson)), values.double())}, values)
    for block_size in BLOCK_SIZES:
        scales = lesson.view(-1, block_size).abs().amax(dim=1, keepdim=True).expand(-1, block_size).flatten()
        best = lloyd_max(lesson / scales, scales.square())
        codes, absmax = quantise(values, block_size, signed=True)
        own = absmax.double().repeat_interleave(block_size)
        decoded = {
            "Lloyd-Max": own * round_by(best, values / own),
            "dynamic map": dequantise(codes, absmax, block_size, signed=True),
            "equal steps": own * round_by(torch.linspace(-1, 1, LEVELS, dtype=torch.float64), values / own),
        }
        rows += _rows(block_size, decoded, values)
    return rows


def _rows(block_size: int | None, decoded: dict[str, Tensor], values: Tensor) -> list[Rounding]:
    measured = {}
    for name, found in decoded.items():
        errors = (found - values.double()).abs()
        measured[name] = (float(errors.mean()), float(errors.square().mean().sqrt()), float(errors.max()))
    best = measured["Lloyd-Max"]
    return [
        Rounding(
            name, block_size, *errors, *(round(error / least, 3) for error, least in zip(errors, best, strict=True))
        )
        for name, errors in measured.items()
    ]


def build_all(parameters: Sequence[nn.Parameter]) -> dict[tuple[str, str, int | None], torch.optim.Optimizer]:
    """(family, backend, block size) -> optimizer; without block size the 32-bit one."""
    optimizers: dict[tuple[str, str, int | None], torch.optim.Optimizer] = {}
    for family, settings in (("sgd", SGD), ("adamw", ADAMW)):
        optimizers[family, "torch", None] = build_optimizer(parameters, family, **settings)
        backends = ["torch", "bitsandbytes"] if find_spec("bitsandbytes") else ["torch"]
        for backend, block_size in [(backend, 256) for backend in backends] + [("torch", 2048)]:
            optimizers[family, backend, block_size] = build_optimizer(
                parameters, f"{family}_8bit", backend=backend, block_size=block_size, min_8bit_size=4096, **settings
            )
    return optimizers


def measure_optimizers(rounds: int, device: torch.device) -> list[Optimizer]:
    parameters = list(build_model(NETWORK).to(device).parameters())
    generator = torch.Generator().manual_seed(0)
    for parameter in parameters:
        parameter.grad = 1e-3 * torch.randn(parameter.shape, generator=generator).to(device)
    optimizers = build_all(parameters)
    milliseconds: dict[tuple[str, str, int | None], list[float]] = {key: [] for key in optimizers}
    for timed_round in range(-1, rounds):
        for key, optimizer in optimizers.items():
            elapsed = _milliseconds(optimizer.step, device)
            if timed_round >= 0:  # the first one makes the state
                milliseconds[key].append(elapsed)
    values = sum(parameter.numel() for parameter in parameters)
    rows = []
    for (family, backend, block_size), optimizer in optimizers.items():
        taken, bytes_32 = milliseconds[family, backend, block_size], state_bytes(optimizers[family, "torch", None])
        rows.append(
            Optimizer(
                family if block_size is None else f"{family}_8bit",
                backend,
                block_size,
                round(state_bytes(optimizer) / values, 4),
                round(state_bytes(optimizer) / bytes_32, 4),
                round(min(taken), 2),
                round(statistics.median(taken), 2),
                round(min(taken) / min(milliseconds[family, "torch", None]), 2),
            )
        )
    return rows


def _milliseconds(step: Callable[[], object], device: torch.device) -> float:
    if device.type == "cpu":
        begin = time.process_time()
        step()
        return 1000 * (time.process_time() - begin)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begin)


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of all tensors of the state; what several parameters share counts once."""
    storages = {}
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def format_tables(rounding: Sequence[Rounding], optimizers: Sequence[Optimizer]) -> str:
    lines = ["| quantiser | block | mean error | rms | worst | times Lloyd-Max: mean | rms | worst |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in rounding:
        lines.append(
            f"| {row.quantiser} | {row.block_size or 'none'} | {row.mean_error:.5f} | {row.root_mean_square_error:.5f} "
            f"| {row.worst_error:.4f} | {row.times_mean:.2f} | {row.times_root_mean_square:.2f} "
            f"| {row.times_worst:.2f} |"
        )
    lines += ["", "| optimizer | backend | block | bytes a parameter | of 32 bits | fastest, ms | times slower |"]
    lines.append("|---|---|---|---|---|---|---|")
    for entry in optimizers:
        lines.append(
            f"| {entry.optimizer} | {entry.backend} | {entry.block_size or '-'} | {entry.bytes_per_parameter:.3f} "
            f"| {100 * entry.state_share:.1f} % | {entry.fastest_ms:.1f} | {entry.times_slower:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--rounds", type=int, default=5, help="steps of every optimizer")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="of the optimizers")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    load = load_average()
    device = torch.device(options.device)
    rounding, optimizers = measure_rounding(), measure_optimizers(options.rounds, device)
    print(format_tables(rounding, optimizers))
    print(f"{os.cpu_count()} CPUs, load average before the start {load}")
    packages = ["torch", *(["bitsandbytes"] if find_spec("bitsandbytes") else [])]
    write_record(
        options.output,
        "quantisation",
        words,
        packages,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        threads=1,
        load_average_before=load,
        values=VALUES,
        rounding=[asdict(row) for row in rounding],
        network=NETWORK,
        rounds=options.rounds,
        optimizers=[asdict(entry) for entry in optimizers],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
