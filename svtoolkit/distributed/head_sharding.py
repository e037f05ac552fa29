"""Builds the sharded head of a run; all else that a run asks of it stands in ``losses.head.Head``."""

from __future__ import annotations

import math

import torch

from svtoolkit.config import OptimConfig
from svtoolkit.distributed.class_shards import shard_classes
from svtoolkit.distributed.sharded_head import ShardedHead
from svtoolkit.distributed.world import World
from svtoolkit.errors import UserError
from svtoolkit.losses import ClassificationHead
from svtoolkit.optim import AdamW8bit, Muon, Muon8bit, SGD8bit


def shard_head(head: ClassificationHead, optim: OptimConfig, world: World) -> ShardedHead:
    """Keep of the head the classes of this process.

    Shards begin where blocks of 8-bit state do, so that the state of the shards, one after the other, is that of the
    whole head.

    Raises:
        UserError: there are fewer classes than processes, or a shard too small for 8-bit state.
    """
    if not head.shardable:
        raise UserError(
            f"loss.shard=true does not work with loss={head.loss_name}, which compares all classes of a crop; set "
            "loss.shard=false, or choose loss=aam, aam_subcenter, am or softmax"
        )
    if head.projection is not None:
        raise UserError(
            "loss.shard=true does not work with a matrix of the classes of low rank, one factor of which has no row "
            "for each class; set loss.shard=false, or leave the matrix whole"
        )
    block_size, smallest = getattr(optim, "block_size", 1), getattr(optim, "min_8bit_size", 0)
    num_classes = len(head.weight)
    rows = [parameter[0].numel() for parameter in head.parameters() if parameter.numel() >= smallest]
    multiple = math.lcm(*(block_size // math.gcd(block_size, row) for row in rows))
    shards = [shard_classes(num_classes, rank=rank, size=world.size, multiple=multiple) for rank in range(world.size)]
    fewest = min(shard.stop - shard.start for shard in shards)
    for row in rows:
        if fewest * row < smallest:
            raise UserError(
                f"loss.shard=true: a shard of {fewest} classes x {row} values is below optim.min_8bit_size={smallest}, "
                f"which the whole head is not; set optim.min_8bit_size={fewest * row}, or use fewer devices"
            )
    return ShardedHead(head, shards[world.rank])


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """A state can be put together from shards only where it is known how it is laid out.

    Raises:
        UserError: the optimizer is none of those here, such as the 8-bit ones of bitsandbytes.
    """
    if type(optimizer) not in (torch.optim.SGD, torch.optim.AdamW, Muon, SGD8bit, AdamW8bit, Muon8bit):
        found = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
        raise UserError(
            f"loss.shard=true does not work with the state of {found}; choose optim=sgd, adamw, muon, sgd_8bit, "
            "adamw_8bit or muon_8bit, the 8-bit ones with optim.backend=torch instead of bitsandbytes"
        )
