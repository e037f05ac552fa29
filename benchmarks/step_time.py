"""Time of training steps against each other, in one process and in turns, so that a busy machine slows them alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.training_step import BINS, CHECKPOINT, FRAMES, REVERSIBLE, STORE, build_network, is_reversible
from svtoolkit.device import autocast

TIMED = ("revnet57", "revnet46", "df_revnet89", "df_revnet66", "revnet155", "resnet34")
TARGET, IDEAL = 1.40, 4 / 3
"""Reversible step to stored step; ideal: one more forward pass, a third of a step."""

BATCH = 4


@dataclass(frozen=True)
class Timing:
    """Seconds of the fastest round, the one least disturbed, and of the median one.

    Attributes:
        processor: least processor time of a round, which waiting for other work does not lengthen; of a GPU's steps
            it is no more than what it takes to launch them.
    """

    fastest: float
    median: float
    processor: float


def time_in_turns(
    variants: Mapping[str, Callable[[], object]], rounds: int, synchronize: Callable[[], object] = lambda: None
) -> dict[str, Timing]:
    """Run all variants once to warm up, then ``rounds`` times in turns; every other round in reverse order.

    Raises:
        ValueError: not one round.
    """
    if rounds < 1:
        raise ValueError(f"found {rounds} rounds, expected 1 or more")
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    processor: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(-1, rounds):
        order = list(variants.items())
        gc.collect()
        for name, run in order if number % 2 else reversed(order):
            synchronize()
            begin, work = time.perf_counter(), time.process_time()
            run()
            synchronize()
            if number >= 0:
                seconds[name].append(time.perf_counter() - begin)
                processor[name].append(time.process_time() - work)
    return {name: Timing(min(taken), statistics.median(taken), min(processor[name])) for name, taken in seconds.items()}


def compare_times(timings: Mapping[str, Timing], base: str) -> dict[str, Any]:
    """Seconds of all, and how many times the base's each takes."""
    record: dict[str, Any] = {}
    for name, timing in timings.items():
        record[name] = {f"{measure}_s": round(seconds, 4) for measure, seconds in asdict(timing).items()}
        if name != base:
            for measure, seconds in asdict(timing).items():
                record[name][f"ratio_{measure}"] = round(seconds / getattr(timings[base], measure), 3)
    return record


def compare_strategies(
    name: str,
    rounds: int,
    *,
    strategies: tuple[str, ...] | None = None,
    batch_size: int = BATCH,
    frames: int = FRAMES,
    precision: str = "fp32",
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Forward and backward pass of a network, reversible (of an ordinary one per-block checkpoint) to stored."""
    device = torch.device("cpu") if device is None else device
    chosen = strategies or (STORE, REVERSIBLE if is_reversible(name) else CHECKPOINT)
    networks = {strategy: build_network(name, strategy, device=device) for strategy in chosen}
    features = torch.randn(batch_size, frames, BINS, device=device)
    timings = time_in_turns(
        {strategy: passes(network, features, precision) for strategy, network in networks.items()},
        rounds,
        synchronizer(device),
    )
    return {
        "batch": batch_size,
        "frames": frames,
        "precision": precision,
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "strategies": compare_times(timings, STORE),
    }


def passes(network: nn.Module, features: torch.Tensor, precision: str = "fp32") -> Callable[[], None]:
    """What makes the gradient of a network anew."""

    def run() -> None:
        network.zero_grad(set_to_none=True)
        with autocast(features.device, precision):
            embeddings = network(features)
        embeddings.sum().backward()

    return run


def synchronizer(device: torch.device) -> Callable[[], object]:
    """What waits for the device: nothing to wait for on the CPU."""
    return partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
