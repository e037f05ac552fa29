"""Replicas: every process has the same weights, and the mean of the gradients of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from svtoolkit.distributed.world import World
from svtoolkit.errors import UserError
from svtoolkit.losses import Head
from svtoolkit.reversible import InvertibleBatchNorm2d


class Replicas:
    """Network and head as a step calls them: as they are in a single process, as DistributedDataParallel in several.

    Then each process has the mean of all gradients once ``backward`` returns, but for those of a head that is not
    replicated. Running statistics of BatchNorm are those of the first process: each forward pass begins with its
    buffers.

    Attributes:
        network, head, pairwise: to call; state and parameters are those of the modules given.
    """

    def __init__(self, network: nn.Module, head: Head, world: World, pairwise: nn.Module | None = None) -> None:
        self.network = _replicate(network, world)
        self.head = _replicate(head, world) if head.is_replicated else head
        self.pairwise = None if pairwise is None else _replicate(pairwise, world)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """No-op: a single process has nothing to synchronise. Of several, gradients are added up and not shared yet."""
        with ExitStack() as stack:
            for module in (self.network, self.head, self.pairwise):
                if isinstance(module, DistributedDataParallel):
                    stack.enter_context(module.no_sync())
            yield


def _replicate(module: nn.Module, world: World) -> nn.Module:
    if world.size == 1:
        return module
    return DistributedDataParallel(module, device_ids=[world.device] if world.device.type == "cuda" else None)


def synchronise_batch_norm(network: nn.Module, world: World) -> nn.Module:
    """BatchNorm over the crops of all processes instead of one's own.

    Raises:
        UserError: on the CPU, for which torch has no such layer, or norms that can be inverted, which it would replace.
    """
    if any(isinstance(module, InvertibleBatchNorm2d) for module in network.modules()):
        raise UserError(
            "trainer.sync_batch_norm=true would replace the norms of this network, which can be inverted, by others; "
            "leave it at false"
        )
    if world.device.type != "cuda":
        raise UserError("trainer.sync_batch_norm=true needs CUDA, and this run is on the CPU; leave it at false")
    return nn.SyncBatchNorm.convert_sync_batchnorm(network)
