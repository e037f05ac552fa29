"""Part offload: memory=offload on real streams, with copies, computation or memory as inconvenient as they can be.

A race shows as a gradient that is not that of stored activations. On a CPU copies are made at once, and only the code
is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu.equality import are_equal, gradients, relative_l2
from benchmarks.gpu.parts import Items, Settings
from benchmarks.gpu.subjects import cudnn_switched, frames_of
from benchmarks.training_step import BINS, STORE, build_network
from svtoolkit.config import MemoryStrategyConfig
from svtoolkit.memory.host_pool import HostPool, pinned
from svtoolkit.memory.strategies.offload import Offload
from svtoolkit.memory.strategies.store import store
from svtoolkit.memory.transfers import CudaTransfers, Transfers
from svtoolkit.models import ChainNetwork

BATCH, STEPS = 4, 6
SLEEP_CYCLES = 2_000_000
"""About a millisecond, longer than a block computes."""
HALF_TOLERANCE = 0.05


class ImmediateTransfers:
    """Copies that are made when they are asked for: of a CPU."""

    def copy(self, source: Tensor, target: Tensor, after: Any) -> None:
        target.copy_(source)

    def wait(self, event: Any) -> None:
        return


class LateTransfers(CudaTransfers):
    """Every copy begins a while after it might."""

    def copy(self, source: Tensor, target: Tensor, after: Any) -> Any:
        with torch.cuda.stream(self._side):
            torch.cuda._sleep(SLEEP_CYCLES)
        return super().copy(source, target, after)


def items(settings: Settings) -> Items:
    """Keys: network, what is inconvenient."""
    networks = ("resnet10", "revnet_tiny") if settings.tiny else ("resnet34", "revnet57", "df_resnet56")
    for network in networks:
        for name in CASES:
            yield f"{network}, {name}", partial(repeat, network, name, settings)


def repeat(name: str, case: str, settings: Settings) -> dict[str, Any]:
    """Some steps on different batches; equal counts those whose gradients are the stored ones."""
    network = build_network(name, STORE, device=settings.device)
    generator = torch.Generator().manual_seed(0)
    steps = 1 if settings.tiny else STEPS
    sizes = [(BATCH + number % 3, frames_of(settings) - 8 * (number % 2)) for number in range(steps)]
    batches = [torch.randn(*size, BINS, generator=generator).to(settings.device) for size in sizes]
    with cudnn_switched(deterministic=True):
        expected = [gradients(network, MemoryStrategyConfig(STORE), features, "fp32") for features in batches]
        found = CASES[case](network, batches, settings)
    differences = [relative_l2(one, other) for one, other in zip(found, expected, strict=True)]
    is_half = case == "half precision"
    good = [d < HALF_TOLERANCE for d in differences] if is_half else list(map(are_equal, found, expected))
    return {"steps": steps, "right": sum(good), "largest_difference": max(differences)}


def offloaded(network: ChainNetwork, settings: Settings, *, half: bool = False, late: bool = False) -> Offload:
    """Put a network under the strategy; every activation travels."""
    is_cuda = settings.device.type == "cuda"

    def transfers(device: torch.device) -> Transfers:
        if not is_cuda:
            return ImmediateTransfers()
        return LateTransfers(device) if late else CudaTransfers(device)

    store(network)
    host = pinned if is_cuda else partial(torch.empty, dtype=torch.uint8)
    strategy = Offload(network, HostPool(host), half=half, intensity=0.0, smallest=1, transfers=transfers)
    strategy.attach()
    return strategy


def as_it_is(network: ChainNetwork, batches: list[Tensor], settings: Settings, **options: bool) -> list[list[Tensor]]:
    """One step after the other."""
    offloaded(network, settings, **options)
    return [_gradients(network, features) for features in batches]


def beside(happens: Callable[[], None]) -> Callable[[ChainNetwork, list[Tensor], Settings], list[list[Tensor]]]:
    """Something happens on the GPU after every convolution, forward and backward."""

    def run(network: ChainNetwork, batches: list[Tensor], settings: Settings) -> list[list[Tensor]]:
        def hook(layer: nn.Module, x: object, value: Tensor) -> None:
            if settings.device.type == "cuda":
                happens()
                if value.requires_grad:
                    value.register_hook(lambda gradient: happens())

        with ExitStack() as stack:
            for layer in network.modules():
                if isinstance(layer, nn.Conv2d):
                    stack.callback(layer.register_forward_hook(hook).remove)
            return as_it_is(network, batches, settings)

    return run


def _late_computation() -> None:
    torch.cuda._sleep(SLEEP_CYCLES)


def _used_memory() -> None:
    """Whatever was given back a moment ago is taken, filled with what is no number, and given back again."""
    for size in (2**20, 2**22, 2**24):
        torch.full((size,), torch.nan, device="cuda")


def several_graphs(network: ChainNetwork, batches: list[Tensor], settings: Settings) -> list[list[Tensor]]:
    """All forward passes before all backward passes, which come in another order; each graph is used twice."""
    offloaded(network, settings)
    values = [network(features).square().mean() for features in batches]
    found: list[list[Tensor]] = [[] for _ in batches]
    for keeps in (True, False):
        for position in reversed(range(len(batches))):
            network.zero_grad(set_to_none=True)
            values[position].backward(retain_graph=keeps)
            found[position] = _collected(network)
    return found


def dropped_graphs(network: ChainNetwork, batches: list[Tensor], settings: Settings) -> list[list[Tensor]]:
    """Before each step a forward pass whose graph is given up while its copies are on their way."""
    offloaded(network, settings)
    found = []
    for features in batches:
        network(features)
        found.append(_gradients(network, features))
    return found


def _gradients(network: ChainNetwork, features: Tensor) -> list[Tensor]:
    network.zero_grad(set_to_none=True)
    network(features).square().mean().backward()
    return _collected(network)


def _collected(network: ChainNetwork) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in network.parameters()]


CASES: dict[str, Callable[[ChainNetwork, list[Tensor], Settings], list[list[Tensor]]]] = {
    "as it is": as_it_is,
    "late copies": partial(as_it_is, late=True),
    "late computation": beside(_late_computation),
    "used memory": beside(_used_memory),
    "several graphs": several_graphs,
    "dropped graphs": dropped_graphs,
    "half precision": partial(as_it_is, half=True),
}
"""What is inconvenient -> gradients of all batches under it."""
