"""memory=offload: activations wait in host memory for their backward pass (Hascoet et al. 2019).

Hascoet et al., Reducing the Memory Cost of Training Convolutional Neural Networks by CPU Offloading, Journal of
Software Engineering and Applications 12 (2019): copies run beside the computation (sec. 4.2), in pinned memory that is
allocated once (sec. 4.3), and cost no time in a layer that computes for longer than its activations travel.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.memory.forward_context import set_forward_context
from svtoolkit.memory.host_pool import HostPool, MappedFolder, pinned
from svtoolkit.memory.intensity import CountFlops
from svtoolkit.memory.offloading import Trip
from svtoolkit.memory.strategies.store import store
from svtoolkit.memory.transfers import Transfers, cuda_transfers
from svtoolkit.reversible import Chain, ReversibleSequence

log = logging.getLogger(__name__)

SMALLEST = 2**18
"""Bytes: below, a copy takes longer to begin than to run."""


def offload(network: nn.Module, *, half: bool, intensity: float, folder: str | None) -> None:
    """Put a network under it that lists its blocks, as chains; what its stages would invert is stored.

    Args:
        half: float32 is moved as float16.
        intensity: forward FLOPs of a block for each byte that it would move, below which its activations stay.
        folder: where files are mapped in the place of host memory; None: pinned memory.

    Raises:
        UserError: no blocks, a number out of range, or a folder that cannot be written to.
    """
    if intensity < 0:
        raise UserError(f"memory.intensity is {intensity!r}, expected a number of FLOPs a byte from 0 on")
    if not blocks_of(network):
        raise UserError(
            f"memory=offload needs a network that lists its blocks, and a {type(network).__name__} lists none; "
            "choose memory=store"
        )
    pool = HostPool(pinned if folder is None else MappedFolder(folder))
    store(network)
    Offload(network, pool, half=half, intensity=intensity).attach()


def blocks_of(network: nn.Module) -> list[nn.Module]:
    """What chains are made of; of reversible sequences, their couplings."""
    found: list[nn.Module] = []
    for chain in network.modules():
        for block in chain if isinstance(chain, Chain) else ():
            found.extend(block if isinstance(block, ReversibleSequence) else [block])
    return found


class Offload:
    """A network under the strategy.

    Args:
        network: whose forward passes become trips.
        pool: of host memory.
        transfers: of a device; None: activations stay on it.
        smallest: bytes of a storage below which it stays.
        half, intensity: as in ``offload``.
    """

    def __init__(
        self, network: nn.Module, pool: HostPool, *, half: bool, intensity: float, smallest: int = SMALLEST,
        transfers: Callable[[torch.device], Transfers | None] = cuda_transfers,
    ) -> None:  # fmt: skip
        self.network, self.pool, self.half, self.intensity = network, pool, half, intensity
        self.smallest, self.transfers = smallest, transfers
        self.intensities: dict[int, float] = {}
        self._trips: list[Trip] = []
        self._has_warned = False

    def attach(self) -> None:
        """Put hooks on the network and its blocks, which ``store`` takes away."""
        set_forward_context(self.network, self.trip)
        for number, block in enumerate(blocks_of(self.network)):
            set_forward_context(block, partial(self.block, number))

    @contextmanager
    def trip(self) -> Iterator[None]:
        """Context of a forward pass of the network."""
        tensors: list[Tensor] = [*self.network.parameters(), *self.network.buffers()]
        device = tensors[0].device
        transfers = self.transfers(device) if torch.is_grad_enabled() else None
        if transfers is None:
            self._warn(device)
            yield
            return
        trip = Trip(device, self.pool, transfers, half=self.half, smallest=self.smallest, staying=tensors)
        self._trips.append(trip)
        try:
            with torch.autograd.graph.saved_tensors_hooks(trip.pack, trip.unpack):
                yield
        finally:
            self._trips.pop()
            trip.arrive()

    @contextmanager
    def block(self, number: int) -> Iterator[None]:
        """Context of a block; of its first time what it computes and saves is counted."""
        if not self._trips:
            yield
            return
        trip = self._trips[-1]
        trip.begin_block(stays=self.intensities.get(number, math.inf) < self.intensity)
        if self.intensity == 0 or number in self.intensities:
            yield
        else:
            before = trip.moved
            with CountFlops() as counted:
                yield
            if moved := trip.moved - before:
                self.intensities[number] = counted.flops / moved
        trip.end_block()

    def _warn(self, device: torch.device) -> None:
        if torch.is_grad_enabled() and not self._has_warned:
            self._has_warned = True
            log.warning("memory=offload does nothing on a %s: activations stay where they are", device.type.upper())
