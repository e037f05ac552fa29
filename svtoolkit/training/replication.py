"""Network and head as one module, of which every process trains a replica."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from svtoolkit.device import autocast
from svtoolkit.errors import UserError
from svtoolkit.losses import ClassificationHead, HeadOutput
from svtoolkit.training.world import World


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


def replicate(learner: Learner, world: World) -> Learner | DistributedDataParallel:
    """With replicas in all processes: each has the mean of all gradients once ``backward`` returns.

    Running statistics of BatchNorm are those of the first process: each forward pass begins with its buffers.
    """
    if world.size == 1:
        return learner
    return DistributedDataParallel(learner, device_ids=[world.device] if world.device.type == "cuda" else None)


def synchronise_batch_norm(network: nn.Module, world: World) -> nn.Module:
    """BatchNorm over the crops of all processes instead of one's own.

    Raises:
        UserError: on the CPU, for which torch has no such layer, or where there is one process.
    """
    if world.size == 1:
        raise UserError("trainer.sync_batch_norm=true needs several devices, and this run has one; leave it at false")
    if world.device.type != "cuda":
        raise UserError("trainer.sync_batch_norm=true needs CUDA, and this run is on the CPU; leave it at false")
    return nn.SyncBatchNorm.convert_sync_batchnorm(network)
