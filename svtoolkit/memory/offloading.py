"""Activations that wait on the host for their backward pass (Hascoet et al. 2019).

A forward pass is a ``Trip``. What autograd saves belongs to the block that is running; when a block ends, its
activations start for the host beside the computation of the next, and are let go on the device when that one ends. When
backward asks for the first activation of a block, those of the block before it start for the device.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from svtoolkit.memory.host_pool import HostBuffer, HostPool
from svtoolkit.memory.transfers import Transfers
from svtoolkit.reversible.recipes import Kept


@dataclass
class Route:
    """Between a device and the host.

    Attributes:
        device: where the network is.
        pool: of host memory.
        transfers: to the host and back.
        half: float32 is moved as float16.
    """

    device: torch.device
    pool: HostPool
    transfers: Transfers
    half: bool = False


class Flight:
    """A copy under way; its memory on the device is held until the computation has waited for its end."""

    def __init__(self, held: Tensor, event: Any, transfers: Transfers) -> None:
        self._held: Tensor | None = held
        self._event, self._transfers = event, transfers

    def land(self) -> Tensor:
        """Wait, and hand over what was held."""
        assert self._held is not None, "a flight lands once"
        held, self._held = self._held, None
        self._transfers.wait(self._event)
        return held

    def __del__(self) -> None:
        if self._held is not None:  # of a graph that was dropped: its memory may be given away after the copy alone
            self.land()


class Cargo:
    """A storage that autograd saves, however many of its tensors are asked for.

    It is on the device until it has left, then on the host, and on the device once more while backward needs it.
    """

    def __init__(self, route: Route, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        count = storage.nbytes() // tensor.dtype.itemsize
        self._route = route
        self._source: Tensor | None = tensor.detach().as_strided((count,), (1,), 0)
        self._version = tensor._version
        self._dtype, self._count = tensor.dtype, count
        self._is_modified = False
        self._host: HostBuffer | None = None
        self._flight: Flight | None = None
        self._returned: Tensor | None = None

    def leave(self) -> None:
        """Start for the host."""
        assert self._source is not None
        self._note_changes()
        source = self._source
        if self._route.half and source.dtype == torch.float32:
            source = source.to(torch.float16)
            self._source = None
        self._sent_as = source.dtype
        self._host = self._route.pool.take(self.bytes_to_move)
        target = self._host.view(self._count, source.dtype)
        self._host.last_use = self._route.transfers.copy(source, target, self._host.last_use)
        self._flight = Flight(source, self._host.last_use, self._route.transfers)

    @property
    def bytes_to_move(self) -> int:
        """In one direction."""
        is_halved = self._route.half and self._dtype == torch.float32
        return self._count * (2 if is_halved else self._dtype.itemsize)

    def let_go(self) -> None:
        """The device needs what has left it no more, as soon as that has arrived."""
        if self._host is None:
            return
        if self._flight is not None:
            self._note_changes()
            self._flight.land()
        self._flight = self._source = self._returned = None

    def _note_changes(self) -> None:
        self._is_modified |= self._source is not None and self._source._version != self._version

    def come_back(self) -> None:
        """Start for the device, unless it is there or on its way."""
        if self._host is None or self._flight is not None or self._returned is not None:
            return
        target = torch.empty(self._count, dtype=self._sent_as, device=self._route.device)
        source = self._host.view(self._count, self._sent_as)
        self._host.last_use = self._route.transfers.copy(source, target, self._host.last_use)
        self._flight = Flight(target, self._host.last_use, self._route.transfers)

    def value(self) -> Tensor:
        """All of the storage, on the device."""
        self._note_changes()
        if self._is_modified:
            raise RuntimeError(
                f"an activation of {self._count} values was modified in place before its gradient was computed; "
                "modify a clone of it"
            )
        if self._source is not None:  # it has not left, or is still here
            return self._source
        self.come_back()
        if self._flight is not None:
            flight, self._flight = self._flight, None
            self._returned = flight.land().to(self._dtype)
        assert self._returned is not None
        return self._returned

    def __del__(self) -> None:
        self._flight = None
        if self._host is not None:
            self._route.pool.give(self._host)


class Ticket:
    """What autograd keeps in the place of a tensor."""

    def __init__(self, trip: Trip, cargo: Cargo, block: int, tensor: Tensor) -> None:
        self._trip, self.cargo, self.block = trip, cargo, block
        self._view = (tensor.size(), tensor.stride(), tensor.storage_offset())

    def value(self) -> Tensor:
        """The tensor; what the block before will need starts for the device."""
        return self._trip.redeem(self).as_strided(*self._view)


class Trip(Route):
    """One forward pass and its backward passes; ``pack`` and ``unpack`` are autograd's hooks.

    Args:
        device: where the network is.
        pool: of host memory.
        transfers: to the host and back.
        half: float32 is moved as float16.
        smallest: bytes of a storage below which it stays.
        staying: weights and buffers, which stay, and what is a view or a cast of them.
    """

    def __init__(
        self, device: torch.device, pool: HostPool, transfers: Transfers, *, half: bool, smallest: int,
        staying: Iterable[Tensor],
    ) -> None:  # fmt: skip
        super().__init__(device, pool, transfers, half)
        self._smallest = smallest
        self._staying = {id(storage): storage for storage in (tensor.untyped_storage() for tensor in staying)}
        self._cargoes: dict[tuple[int, torch.dtype, int], tuple[weakref.ref[Any], weakref.ref[Cargo]]] = {}
        self._blocks: list[list[weakref.ref[Cargo]]] = [[]]
        self._loaded: list[weakref.ref[Cargo]] = []
        self._leaving: list[weakref.ref[Cargo]] = []
        self._stays = self._is_between = False
        self._nearest: int | None = None
        self.moved = 0

    def pack(self, tensor: Tensor) -> Kept | Ticket:
        """What autograd keeps in the place of a tensor."""
        if self._is_between:
            self._advance()
        if self._stays or not self._is_worth_it(tensor):
            return Kept(tensor.detach(), tensor._version)
        storage = tensor.untyped_storage()
        key = (id(storage), tensor.dtype, tensor._version)
        known = self._cargoes.get(key)
        cargo = known[1]() if known is not None and known[0]() is storage else None
        if cargo is None:
            cargo = Cargo(self, tensor)
            self._cargoes[key] = weakref.ref(storage), weakref.ref(cargo)
            self._loaded.append(weakref.ref(cargo))
            self.moved += cargo.bytes_to_move
        self._blocks[-1].append(weakref.ref(cargo))
        return Ticket(self, cargo, len(self._blocks) - 1, tensor)

    @staticmethod
    def unpack(kept: Kept | Ticket) -> Tensor:
        """The tensor."""
        return kept.value()

    def begin_block(self, *, stays: bool = False) -> None:
        """A block begins: that of the one before starts for the host, that of the one before it has to be there.

        Args:
            stays: what the block saves stays on the device.
        """
        self._advance()
        self._stays = stays

    def end_block(self) -> None:
        """What is saved now belongs to no block, until the next begins."""
        self._is_between = True

    def _advance(self) -> None:
        for cargo in _alive(self._leaving):
            cargo.let_go()
        self._leaving, self._loaded = self._loaded, []
        for cargo in _alive(self._leaving):
            cargo.leave()
        self._blocks.append([])
        self._stays = self._is_between = False

    def arrive(self) -> None:
        """The forward pass has ended; what was saved last stays, since backward begins with it."""
        self._cargoes.clear()
        self._staying.clear()

    def redeem(self, ticket: Ticket) -> Tensor:
        """The storage of a ticket; the first of its block lets go of later blocks, and fetches the one before."""
        value = ticket.cargo.value()
        if ticket.block != self._nearest:
            self._nearest = ticket.block
            own = _alive(self._blocks[ticket.block])
            before = next(filter(None, map(_alive, reversed(self._blocks[: ticket.block]))), [])
            needed = {*own, *before}
            for block in self._blocks[ticket.block + 1 :]:
                for cargo in _alive(block):
                    if cargo not in needed:
                        cargo.let_go()
            for cargo in (*own, *before):
                cargo.come_back()
        return value

    def _is_worth_it(self, tensor: Tensor) -> bool:
        storage = tensor.untyped_storage()
        return (
            tensor.device == self.device
            and tensor.layout is torch.strided
            and storage.nbytes() >= self._smallest
            and storage.nbytes() % tensor.dtype.itemsize == 0
            and id(storage) not in self._staying
            and not _is_cast_of_leaf(tensor)
        )


def _alive(references: Iterable[weakref.ref[Cargo]]) -> list[Cargo]:
    return [cargo for reference in references if (cargo := reference())]


def _is_cast_of_leaf(tensor: Tensor) -> bool:
    """Whether autocast made it from a weight."""
    step = tensor.grad_fn
    if step is None or not step.name().startswith("ToCopyBackward"):
        return False
    return all(hasattr(before, "variable") for before, _ in step.next_functions if before is not None)
