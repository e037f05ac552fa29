"""The micro-batch that a GPU is predicted to hold, before anything is allocated there."""

from __future__ import annotations

from svtoolkit.config import MemoryPredictionConfig, TrainConfig
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.planning.memory_prediction import StepMemory, UnpredictableError, predict_memory

NON_TENSOR_BYTES = 2**30
"""The CUDA context, cuDNN's workspaces, gaps of the allocator."""

PROBE = 8
"""Crops of the predicted step: its peak grows in proportion with more."""


def step_of(config: TrainConfig, micro_batch: int, num_classes: int, devices: int = 1) -> MemoryPredictionConfig:
    """What `svt memory` would be asked of the step of a run on so many crops at once."""
    return MemoryPredictionConfig(
        frames=front_end_of(config.features).crop_size(config.data.crop_frames)[1],
        batch_size=micro_batch,
        precision=config.trainer.precision,
        devices=devices,
        num_classes=num_classes,
        num_bins=config.features.num_bins,
        channels_last=config.trainer.channels_last,
        ema=config.trainer.ema is not None,
        device="cpu",
        model=config.model,
        memory=config.memory,
        loss=config.loss,
        optim=config.optim,
    )


def predict_micro_batch(config: TrainConfig, share: int, num_classes: int, limit: int, devices: int = 1) -> int:
    """The most crops at once that divide a device's share of a step and are predicted to fit; 1 where not even one is.

    Args:
        config: of the run.
        share: crops of one step that a device computes.
        num_classes: of the head.
        limit: memory of the GPU in bytes, ``NON_TENSOR_BYTES`` of which are left free.
        devices: that train together.
    """
    if share == 1:
        return 1
    try:
        memory = predict_memory(step_of(config, min(PROBE, share), num_classes, devices))
    except UnpredictableError as error:
        raise UserError(
            f"trainer.micro_batch is null, but what the GPU holds with optim={config.optim.name} cannot be predicted; "
            f"set trainer.micro_batch={share}, or a smaller divisor of it"
        ) from error
    return largest_divisor(memory, share, limit)


def largest_divisor(memory: StepMemory, share: int, limit: int) -> int:
    """As ``predict_micro_batch``, of a step of two crops or more that is predicted already."""
    largest = max(1, memory.largest_batch(limit - NON_TENSOR_BYTES) or 1)
    return max(divisor for divisor in range(1, share + 1) if share % divisor == 0 and divisor <= largest)
