"""Inputs of recomputed modules that wait in host memory for their gradient."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from svtoolkit.memory.host_pool import HostPool, pinned
from svtoolkit.memory.offloading import Cargo, Route
from svtoolkit.memory.transfers import Transfers, cuda_transfers
from svtoolkit.reversible import Stash

log = logging.getLogger(__name__)

BYTES_A_SECOND = 12e9
"""Of a transfer, by assumption: PCI Express 3.0 with 16 lanes, three quarters of its rate."""


def seconds_of(size: int) -> float:
    """Of one transfer of so many bytes."""
    return size / BYTES_A_SECOND


class Away:
    """A tensor in host memory, or on its way."""

    def __init__(self, route: Route, x: Tensor) -> None:
        self._cargo = Cargo(route, x)
        self._view = (x.size(), x.stride(), x.storage_offset())
        self._cargo.leave()

    def settle(self) -> None:
        """Let the device's memory go as soon as the copy has ended."""
        self._cargo.let_go()

    def fetch(self) -> None:
        """Start for the device."""
        self._cargo.come_back()

    def take(self) -> Tensor:
        """The tensor, on the device; it remains on the host."""
        value = self._cargo.value().as_strided(*self._view)
        self._cargo.let_go()
        return value


class Foreseen:
    """As ``Away``, of a tensor without content: what a GPU would hold."""

    def __init__(self, x: Tensor) -> None:
        self._size, self._stride, self._dtype, self._device = x.size(), x.stride(), x.dtype, x.device
        self._held: Tensor | None = x

    def settle(self) -> None:
        self._held = None

    def fetch(self) -> None:
        if self._held is None:
            self._held = torch.empty_strided(self._size, self._stride, dtype=self._dtype, device=self._device)

    def take(self) -> Tensor:
        self.fetch()
        held, self._held = self._held, None
        assert held is not None
        return held


@dataclass
class _Warned:
    """Whether it was said that nothing happens."""

    yes: bool = False


@dataclass(frozen=True)
class HostMemory(Stash):
    """A copy in pinned host memory, which is sent while the module is evaluated that reads the tensor, and comes back
    beside the gradient of the module after it.

    On a device that is no GPU the tensor is kept, with one warning.

    Attributes:
        transfers: of a device; None: the tensor stays there.
        pool: of host memory.
    """

    transfers: Callable[[torch.device], Transfers | None] = field(default=cuda_transfers, compare=False)
    pool: HostPool = field(default_factory=lambda: HostPool(pinned), compare=False)
    _warned: _Warned = field(default_factory=_Warned, compare=False)

    def pack(self, x: Tensor) -> Any:
        """Start for the host."""
        if isinstance(x, FakeTensor):
            return Foreseen(x)
        transfers = self.transfers(x.device)
        if transfers is None:
            if not self._warned.yes:
                self._warned.yes = True
                log.warning(
                    "memory.offload=true does nothing on a %s: activations stay where they are", x.device.type.upper()
                )
            return x
        return Away(Route(x.device, self.pool, transfers), x)

    def settle(self, kept: Any) -> None:
        """The module has been evaluated."""
        if isinstance(kept, Away | Foreseen):
            kept.settle()

    def fetch(self, kept: Any) -> None:
        """The gradient of the module after it begins."""
        if isinstance(kept, Away | Foreseen):
            kept.fetch()

    def unpack(self, kept: Any) -> Tensor:
        """The tensor."""
        return kept.take() if isinstance(kept, Away | Foreseen) else kept
