"""Network, head and optimizer as a training step takes them: of `svt train`, and of `svt memory`, which predicts it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import torch
from torch import nn

from svtoolkit.config import LossConfig, MemoryStrategyConfig, ModelConfig, OptimConfig, PlannedConfig
from svtoolkit.distributed.head_sharding import check_optimizer, shard_head
from svtoolkit.distributed.world import ALONE, World
from svtoolkit.losses import ClassificationHead, Head, build_head
from svtoolkit.memory import apply_strategy
from svtoolkit.models import build_model
from svtoolkit.optim import build_optimizer, exempt_from_decay, leave_to_adamw
from svtoolkit.planning.memory_layout import fails_in_channels_last, lay_out_channels_last


class Trainable(NamedTuple):
    """What a step changes, on its device and in training mode, the optimizer of all of it, and the memory strategy
    that is in force: store or reversible.
    """

    network: nn.Module
    head: Head
    optimizer: torch.optim.Optimizer
    strategy: str


def build_trainable(
    model: ModelConfig,
    memory: MemoryStrategyConfig,
    loss: LossConfig,
    optim: OptimConfig,
    *,
    num_bins: int,
    num_classes: int,
    device: torch.device,
    channels_last: bool,
    frames: int | None = None,
    precision: str = "fp32",
    world: World = ALONE,
    pairwise: nn.Module | None = None,
    undecayed: Callable[[nn.Module, Head], Sequence[nn.Parameter]] = lambda network, head: (),
) -> Trainable:
    """Fresh weights; ``channels_last`` is the memory layout of the network's convolutions, left out where it fails;
    ``frames`` and ``precision`` are those of the crops, which memory=planned asks for; ``world`` are the processes that
    a sharded head is divided among; ``pairwise`` is a term beside the loss, whose parameters are trained without weight
    decay; ``undecayed`` finds further parameters without it.

    Raises:
        UserError: as the builders of the parts.
    """
    network = build_network(model, num_bins)
    strategy = apply_strategy(network, **asdict(for_crops(memory, frames, num_bins, precision)))
    whole = build_whole_head(loss, model.embedding_dim, num_classes)
    head = shard_head(whole, optim, world) if loss.shard else whole
    if device.type != "cpu":  # there they were made, and tensors of FakeTensorMode refuse Module.to altogether
        network, head = network.to(device), head.to(device)
        pairwise = None if pairwise is None else pairwise.to(device)
    if channels_last and not fails_in_channels_last(network, device):
        lay_out_channels_last(network)
    optimizer = optimizer_of(network, head, optim, undecayed(network, head), pairwise)
    if loss.shard:
        check_optimizer(optimizer)
    return Trainable(network.train(), head, optimizer, strategy)


def optimizer_of(
    network: nn.Module,
    head: Head,
    optim: OptimConfig,
    undecayed: Sequence[nn.Parameter] = (),
    pairwise: nn.Module | None = None,
) -> torch.optim.Optimizer:
    """The optimizer of all that is trained, in groups.

    Args:
        undecayed: parameters without weight decay.
        pairwise: term beside the loss, whose parameters have none either.

    Raises:
        UserError: as ``build_optimizer``.
    """
    of_pairwise = [] if pairwise is None else list(pairwise.parameters())
    trained = [*network.parameters(), *of_pairwise, *head.parameters()]
    optimizer = build_optimizer([p for p in trained if p.requires_grad], **asdict(optim))
    leave_to_adamw(optimizer, outer_parameters(network, head))
    if exempt := [*undecayed, *of_pairwise]:
        exempt_from_decay(optimizer, exempt)
    return optimizer


def outer_parameters(network: nn.Module, head: Head) -> list[nn.Parameter]:
    """Those of the layers that are not hidden: the first kernel of the network, and the head."""
    kernels = (parameter for parameter in network.parameters() if parameter.ndim >= 2)
    return [*itertools.islice(kernels, 1), *head.parameters()]


def build_network(model: ModelConfig, num_bins: int) -> nn.Module:
    """The network, with fresh weights.

    Raises:
        UserError: as ``build_model``.
    """
    return build_model(num_bins=num_bins, **asdict(model))


def build_whole_head(loss: LossConfig, embedding_dim: int, num_classes: int) -> ClassificationHead:
    """The head of all classes, with fresh weights.

    Raises:
        UserError: as ``build_head``.
    """
    settings = {key: value for key, value in asdict(loss).items() if key != "shard"}
    return build_head(embedding_dim=embedding_dim, num_classes=num_classes, **settings)


def for_crops(memory: MemoryStrategyConfig, frames: int | None, num_bins: int, precision: str) -> MemoryStrategyConfig:
    """With what is left open of the crops that are planned for."""
    if not isinstance(memory, PlannedConfig):
        return memory
    return replace(
        memory,
        frames=frames if memory.frames is None else memory.frames,
        num_bins=num_bins if memory.num_bins is None else memory.num_bins,
        precision=precision if memory.precision is None else memory.precision,
    )
