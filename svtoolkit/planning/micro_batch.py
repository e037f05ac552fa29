"""The micro-batch that a GPU is predicted to hold, before anything is allocated there."""

from __future__ import annotations

from svtoolkit.config import MemoryPredictionConfig, TrainConfig
from svtoolkit.crops.class_tuples import holds_tuples, tuple_size
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.planning.memory_prediction import StepMemory, predict_memory
from svtoolkit.planning.unpredictable import UnpredictableError

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
        distillation=config.distillation,
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
            f"trainer.micro_batch is null, but what the GPU holds with {error.what} cannot be predicted; set "
            f"trainer.micro_batch={share}, or a smaller divisor of it"
        ) from error
    return largest_divisor(memory, share, limit, tuple_size(config.pairwise))


def largest_divisor(memory: StepMemory, share: int, limit: int, tuples_of: int = 1) -> int:
    """As ``predict_micro_batch``, of a step of two crops or more that is predicted already.

    Args:
        tuples_of: crops that have to be at once in memory with others of their class; see ``ClassTuples``.
    """
    largest = max(1, memory.largest_batch(limit - NON_TENSOR_BYTES) or 1)
    return max((size for size in divisors(share, tuples_of) if size <= largest), default=divisors(share, tuples_of)[-1])


def divisors(share: int, tuples_of: int = 1) -> list[int]:
    """Micro-batches that a share can be made of, the largest first; the share itself where none holds tuples."""
    sizes = [size for size in range(share, 0, -1) if share % size == 0 and holds_tuples(size, tuples_of)]
    return sizes or [share]
