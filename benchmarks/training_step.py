"""A training step as the benchmarks run it: any network, what becomes of its activations, optimizer, precision."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from svtoolkit.config import (
    AdamW8bitConfig,
    AdamWConfig,
    LossConfig,
    MemoryStrategyConfig,
    ModelConfig,
    OptimConfig,
    SGD8bitConfig,
    SGDConfig,
)
from svtoolkit.device import autocast
from svtoolkit.memory import apply_strategy
from svtoolkit.models import ChainNetwork, build_model
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.assembly import build_trainable
from svtoolkit.planning.memory_layout import lay_out_channels_last

FRAMES, BINS = 200, 80
CLASSES = 17982
"""Speakers of VoxCeleb2 at three speeds, as in the paper."""

STORE, CHECKPOINT, REVERSIBLE = "store", "checkpoint", "reversible"
STRATEGIES = (STORE, CHECKPOINT, REVERSIBLE)
"""What becomes of activations; checkpoint: ``torch.utils.checkpoint`` around every block, by this module alone."""

OPTIMIZERS: dict[str, type[OptimConfig]] = {
    "sgd": SGDConfig,
    "sgd_8bit": SGD8bitConfig,
    "adamw": AdamWConfig,
    "adamw_8bit": AdamW8bitConfig,
}


def is_reversible(name: str) -> bool:
    """Whether a network has reversible stages."""
    return NETWORKS[name].help in ("RevNet", "DF-RevNet")


def strategies_of(name: str) -> tuple[str, ...]:
    """Those of ``STRATEGIES`` that a network can be trained with."""
    return STRATEGIES if is_reversible(name) else STRATEGIES[:-1]


def build_network(
    name: str, strategy: str, *, exact: bool = True, channels_last: bool = True, device: torch.device | None = None
) -> ChainNetwork:
    """A network with fresh weights in training mode; ``channels_last`` is the trainer's default."""
    network = build_model(name).train()
    assert isinstance(network, ChainNetwork)
    set_strategy(network, strategy, exact=exact)
    if device is not None and device.type != "cpu":
        network = network.to(device)
    if channels_last:
        lay_out_channels_last(network)
    return network


def set_strategy(network: ChainNetwork, strategy: str, *, exact: bool = True) -> None:
    """Put a network that was built for store or reversible under one of ``STRATEGIES``."""
    apply_strategy(network, _of_package(strategy), exact=exact)
    if strategy == CHECKPOINT:
        checkpoint_blocks(network)


def _of_package(strategy: str) -> str:
    return REVERSIBLE if strategy == REVERSIBLE else STORE


def checkpoint_blocks(network: ChainNetwork) -> None:
    """Keep no more of each block of the stages than its input.

    torch's checkpoint moves the running statistics of BatchNorm a second time when it recomputes: good enough to
    measure memory and time.
    """
    for block in network.blocks():
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


class TrainingStep:
    """Network, margin head, optimizer and a batch of noise; called, it makes one whole step.

    Args:
        name: of the network.
        strategy: one of ``STRATEGIES``; or any strategy of the package, by its settings.
        optimizer: one of ``OPTIMIZERS``, with its default settings.
        precision: fp32, bf16 or fp16 (with loss scaling).
    """

    def __init__(
        self,
        name: str,
        strategy: str | MemoryStrategyConfig,
        *,
        batch_size: int,
        optimizer: str = "sgd",
        precision: str = "fp32",
        device: torch.device | None = None,
        frames: int = FRAMES,
        classes: int = CLASSES,
        channels_last: bool = True,
    ) -> None:
        device = torch.device("cpu") if device is None else device
        self.trainable = build_trainable(
            ModelConfig(name),
            strategy if isinstance(strategy, MemoryStrategyConfig) else MemoryStrategyConfig(_of_package(strategy)),
            LossConfig(),
            OPTIMIZERS[optimizer](),
            num_bins=BINS,
            num_classes=classes,
            device=device,
            channels_last=channels_last,
        )
        self.network, self.head, self.optimizer, _ = self.trainable
        if strategy == CHECKPOINT:
            assert isinstance(self.network, ChainNetwork)
            checkpoint_blocks(self.network)
        self.head.margin = LossConfig().margin
        self.parameters = [*self.network.parameters(), *self.head.parameters()]
        self.precision = precision
        self.features = torch.randn(batch_size, frames, BINS, device=device)
        self.labels = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def __call__(self) -> None:
        for module in (self.network, self.head):
            module.zero_grad(set_to_none=True)
        self.forward().backward()
        self.update()

    def forward(self) -> Tensor:
        """Up to the loss, scaled where the precision is fp16."""
        with autocast(self.features.device, self.precision):
            embeddings = self.network(self.features)
        return self.scaler.scale(self.head(embeddings, self.labels).losses.mean())

    def update(self) -> None:
        """Of the weights; also where a gradient of fp16 overflows, since memory and time are what is asked for."""
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parameters, float("inf"))
        self.optimizer.step()
        self.scaler.update()
