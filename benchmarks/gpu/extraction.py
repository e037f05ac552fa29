"""Part extraction: embeddings of whole recordings, of equal length in a batch, from waveforms in memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.allocator import release
from benchmarks.gpu.parts import Items, Settings
from benchmarks.gpu.subjects import LAYOUTS, PRECISIONS, key_of, seconds_of
from benchmarks.training_step import build_network

NETWORKS = ("resnet34", "revnet57", "resnet152", "revnet197", "ecapa_tdnn_c1024")
LENGTHS = ((4, 32), (8, 16), (300, 1))
"""Seconds of a recording, recordings of a batch; the last one goes in stretches."""


def items(settings: Settings) -> Items:
    """Keys: network, precision, layout, recordings of so many seconds."""
    networks = ("resnet10",) if settings.tiny else NETWORKS
    lengths = ((2, 2),) if settings.tiny else LENGTHS
    for seconds, batch in lengths:
        for channels_last in LAYOUTS:
            for network in networks:
                for precision in PRECISIONS:
                    key = key_of(network, precision, LAYOUTS[channels_last], f"{batch} of {seconds} s")
                    yield key, partial(measure, network, precision, channels_last, seconds, batch, settings)


def measure(
    network: str, precision: str, channels_last: bool, seconds: int, batch: int, settings: Settings
) -> dict[str, Any]:
    """Seconds of audio a second, and the allocator's peak."""
    from svtoolkit.features import build_front_end
    from svtoolkit.scoring.forward import BoundedForward

    device = settings.device
    release(device)
    front_end = build_front_end()
    built = build_network(network, "store", channels_last=channels_last, device=device).eval()
    forward = BoundedForward(built, front_end.to(device), device, precision, 120.0)
    generator = np.random.default_rng(0)
    signals = [generator.standard_normal(seconds * front_end.sample_rate, dtype=np.float32) * 0.1 for _ in range(batch)]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    found: dict[str, Any] = dict(seconds_of(partial(forward, signals), settings))
    found["audio_seconds_per_second"] = round(seconds * batch / found["median_s"], 1)
    found["peak_bytes"] = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return found
