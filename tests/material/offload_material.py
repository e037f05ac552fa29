"""Offloading with the CPU as the far side: copies that run as late, and in as bad an order, as they may."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from reversible_material import Step, weighted_sum
from torch import Tensor, nn

from svtoolkit.memory.host_pool import HostPool
from svtoolkit.memory.strategies.offload import Offload
from svtoolkit.memory.strategies.store import store


def plain(nbytes: int) -> Tensor:
    """Host memory, full of what is no number."""
    return torch.full((nbytes,), 255, dtype=torch.uint8)


class Place:
    """Where a tensor is, without holding its memory."""

    def __init__(self, tensor: Tensor) -> None:
        self.storage = weakref.ref(tensor.untyped_storage())
        self.number = id(tensor.untyped_storage())
        self.shape, self.dtype = (tensor.storage_offset(), tensor.shape, tensor.stride()), tensor.dtype

    def tensor(self) -> Tensor:
        storage = self.storage()
        assert storage is not None, "memory was given away before its copy had ended"
        return torch.empty(0, dtype=self.dtype).set_(storage, *self.shape)


@dataclass
class Copy:
    source: Place
    target: Place
    after: Copy | None
    has_run: bool = False


class LateTransfers:
    """A copy runs when somebody waits for it, after the one that it was told to follow, and after no other.

    Attributes:
        order: what was asked for: "copy" and "wait", with the copy.
    """

    def __init__(self) -> None:
        self.order: list[tuple[str, Copy]] = []

    def copy(self, source: Tensor, target: Tensor, after: Copy | None) -> Copy:
        assert source.dtype == target.dtype
        assert source.shape == target.shape
        if target.numel() and target.untyped_storage().nbytes() == target.nbytes and target.is_floating_point():
            target.fill_(torch.nan)
        copy = Copy(Place(source), Place(target), after)
        self.order.append(("copy", copy))
        return copy

    def wait(self, event: Copy) -> None:
        self.order.append(("wait", event))
        self._run(event)

    def _run(self, copy: Copy) -> None:
        chain: list[Copy] = []
        following: Copy | None = copy
        while following is not None and not following.has_run:
            chain.append(following)
            following = following.after
        for each in reversed(chain):
            each.target.tensor().copy_(each.source.tensor())
            each.has_run = True


def offloaded(network: nn.Module, transfers: LateTransfers | None = None, **settings) -> Offload:
    """Put a network under the strategy, with the CPU as the device; every tensor is large enough."""
    transfers = transfers or LateTransfers()
    store(network)
    made = {"half": False, "intensity": 0.0, "smallest": 1, "transfers": lambda device: transfers, **settings}
    strategy = Offload(network, HostPool(plain), **made)
    strategy.attach()
    return strategy


def step_of(network: nn.Module, x: Tensor, *, cast: torch.dtype | None = None, learns_input: bool = True) -> Step:
    """As ``one_step``, under the strategy that the network is under."""
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    network.zero_grad()
    x = x.clone().requires_grad_(learns_input)
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=cast, enabled=cast is not None):
        value = network(x.clone())
    weighted_sum(value).backward()
    gradients = {"input": x.grad} if learns_input else {}
    gradients |= {name: parameter.grad for name, parameter in network.named_parameters()}
    step = Step(value.detach(), gradients, {name: buffer.clone() for name, buffer in network.named_buffers()})
    network.zero_grad()
    for name, buffer in network.named_buffers():
        buffer.copy_(before[name])
    return step


def free_bytes(strategy: Offload) -> int:
    return sum(len(buffer.memory) for buffer in strategy.pool._free)
