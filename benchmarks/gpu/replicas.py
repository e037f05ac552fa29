"""Part replicas: a step on two GPUs against one, and how fast they add up gradients."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.gpu.parts import Items, LeftOutError, Settings
from benchmarks.gpu.subjects import build_step, key_of, seconds_of
from svtoolkit.distributed.world import World

BATCH = 32
"""Crops of each GPU."""
STEPS = (("resnet34", "store"), ("revnet57", "reversible"), ("revnet197", "reversible"))


def items(settings: Settings) -> Items:
    """Keys: network, strategy, precision; or the reduction."""
    yield "all-reduce of 64 MiB", partial(on_two, "reduction", "", "", settings)
    for network, strategy in (("revnet_tiny", "reversible"),) if settings.tiny else STEPS:
        for precision in ("fp32", "fp16"):
            yield key_of(network, strategy, precision), partial(on_two, network, strategy, precision, settings)


def on_two(network: str, strategy: str, precision: str, settings: Settings) -> dict[str, Any]:
    """What the first of two processes finds."""
    if settings.device.type != "cuda":
        raise LeftOutError("it needs two GPUs, and the device is a CPU")
    if torch.cuda.device_count() < 2:
        raise LeftOutError(f"it needs two GPUs, and there are {torch.cuda.device_count()}")
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port, answer = free.getsockname()[1], Path(folder) / "found.json"
        free.close()
        torch.multiprocessing.spawn(  # type: ignore[no-untyped-call]
            _process, (port, network, strategy, precision, settings.tiny, answer), nprocs=2
        )
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def _process(rank: int, port: int, network: str, strategy: str, precision: str, tiny: bool, answer: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    try:
        world = World(rank, 2, rank, 2, device)
        found = measure(network, strategy, precision, Settings(device, tiny), world)
    finally:
        dist.destroy_process_group()
    if rank == 0:
        answer.write_text(json.dumps(found))


def measure(network: str, strategy: str, precision: str, settings: Settings, world: World) -> dict[str, Any]:
    """Seconds of a step alone and among replicas, or of a reduction; all processes have to call it."""
    if network == "reduction":
        values = torch.ones(2**10 if settings.tiny else 2**24, device=settings.device)
        found: dict[str, Any] = dict(seconds_of(lambda: dist.all_reduce(values), settings, most=float("inf")))
        return {**found, "bytes_per_second": values.nbytes / found["median_s"]}
    step = build_step(network, strategy, precision, settings, batch_size=BATCH)
    alone = seconds_of(step, settings, most=float("inf"))
    ids = [world.local_rank] if settings.device.type == "cuda" else None
    step.network = DistributedDataParallel(step.network, device_ids=ids)
    together = seconds_of(step, settings, most=float("inf"))
    return {**together, "alone_s": alone["median_s"], "times_alone": together["median_s"] / alone["median_s"]}
