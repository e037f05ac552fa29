"""Part memory: a whole step's peak by the allocator beside the ledger's prediction, and what lies outside tensors."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.gpu.allocator import release, reported_peak
from benchmarks.gpu.parts import Items, Settings
from benchmarks.gpu.predictions import line_of
from benchmarks.gpu.subjects import build_step, combinations, key_of, networks_of
from benchmarks.step_time import synchronizer
from benchmarks.training_step import CLASSES

BATCHES = (16, 64)
PRECISIONS = ("fp32", "fp16")


def items(settings: Settings) -> Items:
    """Keys: network, strategy, precision, batch."""
    yield "context", lambda: context(settings)
    for batch in BATCHES[:1] if settings.tiny else BATCHES:
        for network, strategy, precision in combinations(networks_of(settings), PRECISIONS):
            yield (
                key_of(network, strategy, precision, str(batch)),
                lambda n=network, s=strategy, p=precision, b=batch: peak(n, s, p, b, settings),  # type: ignore[misc]
            )


def context(settings: Settings) -> dict[str, Any]:
    """What a process has of the GPU beside its tensors: before it computes, and after a first convolution."""
    device = settings.device
    layer = torch.nn.Conv2d(8, 8, 3, device=device)
    before = outside_tensors(device)
    layer(torch.randn(1, 8, 32, 32, device=device)).sum().backward()
    synchronizer(device)()
    return {"first_tensor_bytes": before, "first_convolution_bytes": outside_tensors(device)}


def outside_tensors(device: torch.device) -> int | None:
    """Bytes of the GPU that are in use and that the allocator has not; of all processes. None on a CPU."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


def peak(network: str, strategy: str, precision: str, batch: int, settings: Settings) -> dict[str, Any]:
    """Bytes at the peak of the second step, by the allocator: handed out, and taken from the GPU; and predicted."""
    device = settings.device
    step = build_step(network, strategy, precision, settings, batch_size=batch)
    step()  # the optimizer's state, and what libraries keep
    allocated = reported_peak(step, device)
    line = line_of(network, strategy, "sgd", precision)
    predicted = None if line is None else line.peak_of(batch)
    found: dict[str, Any] = {
        "classes": CLASSES,
        "predicted_bytes": predicted,
        "allocated_bytes": allocated,
        "reserved_bytes": torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None,
        "outside_bytes": outside_tensors(device),
        "times_predicted": None if None in (allocated, predicted) else round(allocated / predicted, 4),  # type: ignore[operator]
    }
    del step
    release(device)
    return found
