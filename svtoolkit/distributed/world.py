"""The processes of one run: who this one is, and what they tell each other once a step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist

from svtoolkit.errors import UserError
from svtoolkit.system.signals import interruptible

PREFLIGHT = timedelta(seconds=120)
"""To find each other and add up one number."""

PATIENCE = timedelta(hours=2)
"""For a collective: while the first process validates or writes, the others wait in one."""

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables by which torchrun and our own launcher tell a process its place."""


CPU = torch.device("cpu")


@dataclass(frozen=True)
class World:
    """Place of this process among those that train together.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        local_rank: its number on its machine, which is the number of its card.
        local_size: how many are on its machine.
        device: where it computes.
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

    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes, each of which gives the same names."""
        if self.size == 1:
            return dict(numbers)
        sums = torch.tensor(list(numbers.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return dict(zip(numbers, sums.tolist(), strict=True))

    def gather(self, rows: list[int]) -> list[int]:
        """The lists of all processes, one after the other."""
        if self.size == 1:
            return rows
        lists: list[list[int]] = [[] for _ in range(self.size)]
        dist.all_gather_object(lists, rows)
        return [row for each in lists for row in each]

    def wait(self) -> None:
        """Until all have come here."""
        if self.size > 1:
            dist.barrier(device_ids=[self.local_rank] if self.device.type == "cuda" else None)


ALONE = World()
"""One process that trains by itself, on the CPU."""


class Place(NamedTuple):
    """Of a process among those that train together; as in ``World``."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def place_in_environment() -> Place | None:
    """The place that torchrun gives; None: this process was started alone.

    Raises:
        UserError: some of the variables are there and others are not, or one is no number or no place.
    """
    found = {name: os.environ[name] for name in PLACE if os.environ.get(name)}
    if "RANK" not in found and "WORLD_SIZE" not in found:
        return None
    missing = [name for name in PLACE if name not in found]
    if missing:
        raise UserError(
            f"{', '.join(found)} are set and {', '.join(missing)} are not; start the run with torchrun, "
            "which sets all, or unset them"
        )
    try:
        place = Place(*(int(found[name]) for name in PLACE[:4]))
    except ValueError as error:
        raise UserError(f"{', '.join(PLACE[:4])} are to be numbers, found {found}; start the run anew") from error
    _refuse_impossible(place, found["MASTER_PORT"])
    return place


def _refuse_impossible(place: Place, port: str) -> None:
    def refuse(what: str) -> NoReturn:
        raise UserError(f"{what}; start the run with torchrun, which sets all, or unset {', '.join(PLACE)}")

    for name, number, size_name, size in zip(PLACE[:4:2], place[::2], PLACE[1:4:2], place[1::2], strict=True):
        if size < 1:
            refuse(f"{name} is {number}, but {size_name} is {size}, expected 1 or more")
        if not 0 <= number < size:
            refuse(f"{name} is {number}, expected 0 to {size - 1} where {size_name} is {size}")
    if not (port.isdecimal() and 0 < int(port) < 2**16):
        refuse(f"MASTER_PORT is {port!r}, expected a number from 1 to 65535")


@contextmanager
def joined(place: Place, device: torch.device, agreed: str) -> Iterator[World]:
    """Meet the other processes, and part from them at the end.

    Args:
        place: of this process; the address is in the environment.
        device: cpu: they talk through gloo; cuda: through NCCL.
        agreed: what all must have in common, such as the configuration.

    Raises:
        UserError: they do not find each other in two minutes, cannot talk, or want different things.
    """
    backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    world = World(*place, device)
    try:
        with interruptible():
            store, _, _ = next(dist.rendezvous("env://", place.rank, place.size, timeout=PREFLIGHT))
            store.set_timeout(PREFLIGHT)
            store = dist.PrefixStore("svtoolkit", store)
            dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=PATIENCE)
            _preflight(world)
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(_unreachable(world, backend, error)) from error
    try:
        _refuse_disagreement(world, agreed)
        yield world
    finally:
        dist.destroy_process_group()


def _preflight(world: World) -> None:
    """One small collective with a short time-out: what is wrong with the network shows before any work is done."""
    group = dist.new_group(timeout=PREFLIGHT)
    one = torch.ones((), device=world.device)
    dist.all_reduce(one, group=group)
    if int(one) != world.size:
        raise RuntimeError(f"the sum of {world.size} ones came out as {float(one)}")
    dist.destroy_process_group(group)


def _refuse_disagreement(world: World, agreed: str) -> None:
    said: list[Any] = [None] * world.size
    dist.all_gather_object(said, agreed)
    other = next((rank for rank, word in enumerate(said) if word != said[0]), None)
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
        f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')} within {PREFLIGHT.seconds} s ({reason}); "
        f"check that all {world.size} were started, that the address is that of process 0, that no firewall is between "
        f"them, and name the network interface with {variable}"
    )
