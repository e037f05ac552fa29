"""Part batches: the largest batch whose whole training step fits under a cap on the allocator."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from benchmarks.gpu.allocator import capped, largest_batch, release, reported_peak, runs
from benchmarks.gpu.parts import Items, LeftOutError, Settings
from benchmarks.gpu.predictions import line_of
from benchmarks.gpu.subjects import build_step, key_of
from benchmarks.memory_ledger import GIB

CAPS_GIB = (11, 4, 1)
"""Of the allocator alone: the context lies outside."""

STEPS = (
    ("resnet34", "store", "sgd"),
    ("revnet57", "reversible", "sgd"),
    ("revnet197", "reversible", "sgd"),
    ("revnet197", "reversible", "sgd_8bit"),
    ("df_revnet89", "reversible", "sgd"),
    ("resnet34", "checkpoint", "sgd"),
    ("resnet34", "planned", "sgd"),
    ("resnet152", "store", "sgd"),
    ("resnet152", "checkpoint", "sgd"),
    ("resnet152", "planned", "sgd"),
)
PROBES = (1, 8)
"""Utterances of two steps, the line through whose peaks foretells the batch where nothing was predicted."""


def items(settings: Settings) -> Items:
    """Keys: network, strategy, optimizer, precision, cap."""
    steps = (("resnet10", "store", "sgd"), ("revnet_tiny", "reversible", "sgd_8bit")) if settings.tiny else STEPS
    for precision, cap, (network, strategy, optimizer) in product(("fp32", "fp16"), CAPS_GIB, steps):
        yield (
            key_of(network, strategy, optimizer, precision, f"{cap} GiB"),
            partial(largest_under, network, strategy, optimizer, precision, cap, settings),
        )


def largest_under(
    network: str, strategy: str, optimizer: str, precision: str, cap_gib: float, settings: Settings
) -> dict[str, Any]:
    """The largest batch, beside the predicted one."""
    device = settings.device
    if settings.device.type == "cuda" and cap_gib * GIB > _total(settings):
        raise LeftOutError(f"the GPU has less than {cap_gib} GiB")

    def two_steps(batch_size: int) -> None:
        step = build_step(network, strategy, precision, settings, batch_size=batch_size, optimizer=optimizer)
        step()
        step()  # which finds the optimizer's state

    def fits(batch_size: int) -> bool:
        release(device)
        return runs(partial(two_steps, batch_size), device)

    line = line_of(network, strategy, optimizer, precision)
    predicted = None if line is None else line.largest_batch(cap_gib * GIB)
    with capped(cap_gib * GIB, device):
        guess = predicted
        if guess is None:
            peaks = [reported_peak(partial(two_steps, size), device) for size in PROBES]
            guess = _meeting(peaks, cap_gib * GIB)
        found = largest_batch(fits, max(1, guess))
    release(device)
    return {"largest_batch": found, "predicted": predicted}


def _meeting(peaks: list[int | None], cap_bytes: float) -> int:
    """Where the line through two peaks meets the cap."""
    one, more = peaks
    if one is None or more is None:
        return 1
    slope = max(1.0, (more - one) / (PROBES[1] - PROBES[0]))
    return max(1, PROBES[0] + int((cap_bytes - one) / slope))


def _total(settings: Settings) -> int:
    import torch

    return torch.cuda.get_device_properties(settings.device).total_memory
