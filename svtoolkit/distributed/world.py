"""The processes of one run: who this one is, and what they tell each other once a step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from svtoolkit.distributed.rank import Rank
from svtoolkit.errors import UserError
from svtoolkit.system.signals import interruptible

Item = TypeVar("Item")

PREFLIGHT_TIMEOUT = timedelta(seconds=120)
"""To find each other and add up one number."""

COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""While the first process validates or writes, the others wait in a collective."""

CPU = torch.device("cpu")


@dataclass(frozen=True)
class World:
    """The processes that train together: which of them this one is, as in ``Rank``, and what they tell each other.

    Attributes:
        device: where this one computes: the GPU of number ``local_rank``, or the CPU.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        """Whether it is the one that validates, writes and shows progress."""
        return self.rank == 0

    def all_reduce_sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes, each of which gives the same names."""
        if self.size == 1:
            return dict(numbers)
        sums = torch.tensor(list(numbers.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return dict(zip(numbers, sums.tolist(), strict=True))

    def all_gather(self, rows: list[Item]) -> list[Item]:
        """The lists of all processes, one after the other."""
        if self.size == 1:
            return rows
        lists: list[list[Item]] = [[] for _ in range(self.size)]
        dist.all_gather_object(lists, rows)
        return [row for each in lists for row in each]

    def barrier(self) -> None:
        """Wait until all have come here."""
        if self.size > 1:
            dist.barrier(device_ids=[self.local_rank] if self.device.type == "cuda" else None)


ALONE = World()
"""One process that trains by itself, on the CPU."""


@contextmanager
def process_group(rank: Rank, device: torch.device, must_match: str) -> Iterator[World]:
    """torch's process group of all ranks, initialised, tried, and destroyed at the end.

    Args:
        rank: of this process; the address of the first one is in the environment.
        device: cpu: they talk through gloo; cuda: through NCCL.
        must_match: the same in all processes, such as the configuration.

    Raises:
        UserError: they do not find each other in two minutes, cannot talk, or do not match.
    """
    backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    world = World(*rank, device)
    try:
        with interruptible():
            store, _, _ = next(dist.rendezvous("env://", rank.rank, rank.size, timeout=PREFLIGHT_TIMEOUT))
            store.set_timeout(PREFLIGHT_TIMEOUT)
            store = dist.PrefixStore("svtoolkit", store)
            dist.init_process_group(
                backend, store=store, rank=rank.rank, world_size=rank.size, timeout=COLLECTIVE_TIMEOUT
            )
            _preflight(world)
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(_unreachable(world, backend, error)) from error
    try:
        _check_match(world, must_match)
        yield world
    finally:
        dist.destroy_process_group()


def _preflight(world: World) -> None:
    """One small collective with a short time-out: what is wrong with the network shows before any work is done."""
    group = dist.new_group(timeout=PREFLIGHT_TIMEOUT)
    one = torch.ones((), device=world.device)
    dist.all_reduce(one, group=group)
    if int(one) != world.size:
        raise RuntimeError(f"the sum of {world.size} ones came out as {float(one)}")
    dist.destroy_process_group(group)


def _check_match(world: World, must_match: str) -> None:
    found: list[Any] = [None] * world.size
    dist.all_gather_object(found, must_match)
    other = next((rank for rank, value in enumerate(found) if value != found[0]), None)
    if other is not None:
        raise UserError(
            f"process {other} of {world.size} was started with another configuration or version than process 0; "
            "start all with the same command on the same code"
        )


def _unreachable(world: World, backend: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:200]
    variable = "NCCL_SOCKET_IFNAME" if backend == "nccl" else "GLOO_SOCKET_IFNAME"
    return (
        f"process {world.rank} of {world.size} could not reach the others through {backend} at "
        f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')} within {PREFLIGHT_TIMEOUT.seconds} s "
        f"({reason}); check that all {world.size} were started, that the address is that of process 0, that no "
        f"firewall is between them, and name the network interface with {variable}"
    )
