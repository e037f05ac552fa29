"""Part steps: the time and the peak of a whole training step."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import torch

from benchmarks.gpu.allocator import release
from benchmarks.gpu.parts import Items, Settings
from benchmarks.gpu.subjects import (
    LAYOUTS,
    PRECISIONS,
    build_step,
    combinations,
    cudnn_switched,
    key_of,
    networks_of,
    seconds_of,
    strategies,
)

BATCH = 32
WHOLE_GRID = ("resnet34", "revnet57")
"""Networks that are measured under all switches; the others under the trainer's defaults."""


def items(settings: Settings) -> Items:
    """Keys: network, strategy, precision, layout, deterministic or free; the trainer's defaults first."""
    networks = networks_of(settings)
    defaults = [(*each, True, True) for each in combinations(networks, PRECISIONS)]
    grid = networks if settings.tiny else WHOLE_GRID
    every = [
        (network, strategy, precision, last, deterministic)
        for network, deterministic, last, precision, strategy in product(
            grid, (False, True), (True, False), PRECISIONS, strategies()
        )
    ]
    for network, strategy, precision, last, deterministic in dict.fromkeys([*defaults, *every]):
        key = key_of(network, strategy, precision, LAYOUTS[last], "deterministic" if deterministic else "free")
        yield key, partial(measure, network, strategy, precision, last, deterministic, settings)


def measure(
    network: str, strategy: str, precision: str, channels_last: bool, deterministic: bool, settings: Settings
) -> dict[str, Any]:
    """Seconds of a step on ``BATCH`` crops, and the allocator's peak of it."""
    device = settings.device
    release(device)
    with cudnn_switched(deterministic=deterministic):
        step = build_step(network, strategy, precision, settings, batch_size=BATCH, channels_last=channels_last)
        if device.type == "cuda":
            step()
            torch.cuda.reset_peak_memory_stats(device)
        found: dict[str, Any] = {"batch": len(step.features), **seconds_of(step, settings)}
        found["crops_per_second"] = round(found["batch"] / found["median_s"], 1)
        found["peak_bytes"] = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    del step
    release(device)
    return found
