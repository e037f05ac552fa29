"""What every process trains a replica of: network and head as one module, or the network, of a head in shares."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from svtoolkit.device import autocast
from svtoolkit.distributed.sharded_head import ShardedHead
from svtoolkit.distributed.world import World
from svtoolkit.errors import UserError
from svtoolkit.losses import ClassificationHead, HeadOutput


class Learner(nn.Module):
    """Embeds under autocast, compares without it: (batch, frames, bins), (batch,) -> losses and hits."""

    def __init__(self, network: nn.Module, head: ClassificationHead, device: torch.device, precision: str) -> None:
        super().__init__()
        self.network = network
        self.head = head
        self.device = device
        self.precision = precision

    def forward(self, features: Tensor, labels: Tensor) -> HeadOutput:
        with autocast(self.device, self.precision):
            embeddings = self.network(features)
        return self.head(embeddings, labels)

    def no_sync(self) -> AbstractContextManager[None]:
        """As of a replica; there is nobody to be out of step with."""
        return nullcontext()


class Embedder(nn.Module):
    """Embeds under autocast: (batch, frames, bins) -> (batch, embedding_dim)."""

    def __init__(self, network: nn.Module, device: torch.device, precision: str) -> None:
        super().__init__()
        self.network = network
        self.device = device
        self.precision = precision

    def forward(self, features: Tensor) -> Tensor:
        with autocast(self.device, self.precision):
            return self.network(features)


class ShardedLearner(nn.Module):
    """A ``Learner`` whose network has replicas and whose head has shares, which no mean is taken of."""

    def __init__(self, network: nn.Module, head: ShardedHead, world: World, precision: str) -> None:
        super().__init__()
        self.embedder = _replicate(Embedder(network, world.device, precision), world)
        self.head = head

    def forward(self, features: Tensor, labels: Tensor) -> HeadOutput:
        return self.head(self.embedder(features), labels)

    def no_sync(self) -> AbstractContextManager[None]:
        """As of a replica; the gradients of a share are its own at all times."""
        return self.embedder.no_sync()


def build_learner(
    network: nn.Module, head: ClassificationHead | ShardedHead, world: World, device: torch.device, precision: str
) -> Learner | ShardedLearner | DistributedDataParallel:
    """With replicas in all processes: each has the mean of all gradients once ``backward`` returns.

    Running statistics of BatchNorm are those of the first process: each forward pass begins with its buffers.
    """
    if isinstance(head, ShardedHead):
        return ShardedLearner(network, head, world, precision)
    learner = Learner(network, head, device, precision)
    return learner if world.size == 1 else _replicate(learner, world)


def _replicate(module: nn.Module, world: World) -> DistributedDataParallel:
    return DistributedDataParallel(module, device_ids=[world.device] if world.device.type == "cuda" else None)


def synchronise_batch_norm(network: nn.Module, world: World) -> nn.Module:
    """BatchNorm over the crops of all processes instead of one's own.

    Raises:
        UserError: on the CPU, for which torch has no such layer.
    """
    if world.device.type != "cuda":
        raise UserError("trainer.sync_batch_norm=true needs CUDA, and this run is on the CPU; leave it at false")
    return nn.SyncBatchNorm.convert_sync_batchnorm(network)
