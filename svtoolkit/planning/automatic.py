"""memory=auto on a GPU: the quickest strategy whose gradients are exact and whose step is predicted to fit."""

from __future__ import annotations

from typing import NamedTuple

from svtoolkit.config import CheckpointConfig, MemoryStrategyConfig, PlannedConfig, RecomputeNormConfig, TrainConfig
from svtoolkit.crops.class_tuples import tuple_size
from svtoolkit.planning.cards import Card
from svtoolkit.planning.micro_batch import step_of
from svtoolkit.planning.profiles import profile_or_recall
from svtoolkit.planning.training_plan import Way, peak_of, plan_training
from svtoolkit.planning.unpredictable import UnpredictableError

CHOSEN_FROM: tuple[MemoryStrategyConfig, ...] = (
    MemoryStrategyConfig("store"),
    MemoryStrategyConfig("reversible"),
    RecomputeNormConfig("recompute_norm"),
    RecomputeNormConfig("recompute_norm", expansions=True),
    PlannedConfig("planned", times=1.2),
    CheckpointConfig("checkpoint", segments="blocks"),
    CheckpointConfig("checkpoint", segments="sqrt"),
)
"""Strategies of exact gradients that a run on a GPU chooses from."""

ENOUGH_FOR_BATCH_NORM = 32
"""Crops at once that its statistics are good of: a quicker strategy with fewer is not chosen where one has more."""

OUTSIDE = ("context", "slack")
"""What of a peak no tensor is, nor handed out by torch's allocator."""


class ExpectedPeak(NamedTuple):
    """Bytes that torch's allocator is predicted to hand out: tensors, and the most that a workspace takes."""

    tensors: float
    workspace: float


def choose_way(
    config: TrainConfig, card: Card, share: int, num_classes: int, devices: int, micro_batch: int | None
) -> Way | None:
    """How a run with memory=auto is trained on a card.

    Args:
        config: of the run.
        share: crops of a step on a device.
        num_classes: of the head.
        devices: that train together.
        micro_batch: crops at once, as configured; None: free.

    Returns:
        the quickest way that fits; with a free micro-batch, of those with 32 crops or more, or else with the most.
        Where none fits, that of the smallest peak; None: what a step needs cannot be predicted.
    """
    question = step_of(config, share, num_classes, devices)
    try:
        plan = plan_training(
            question, card, share, optims=[config.optim], precisions=(config.trainer.precision,),
            memories=_with_arithmetic_of(config.memory), micro_batch=micro_batch, tuples_of=tuple_size(config.pairwise),
        )  # fmt: skip
    except UnpredictableError:
        return None
    if not plan.ways:
        return plan.least
    enough = min(share, ENOUGH_FOR_BATCH_NORM, max(way.micro_batch for way in plan.ways))
    return next(way for way in plan.ways if way.micro_batch >= enough)


def expect_peak(
    config: TrainConfig, card: Card, share: int, num_classes: int, devices: int, micro_batch: int
) -> ExpectedPeak | None:
    """What a step is predicted to need under the strategy of the configuration; None: it cannot be predicted."""
    question = step_of(config, micro_batch, num_classes, devices)
    precision = config.trainer.precision
    try:
        profiles = profile_or_recall(question, [config.memory], [precision], [config.optim])
    except UnpredictableError:
        return None
    step = profiles.step(config.memory, precision)
    if step is None:
        return None
    peak = peak_of(step, profiles.update(config.optim), card, micro_batch, accumulates=micro_batch < share)
    return ExpectedPeak(
        sum(size for kind, size in peak.items() if kind not in (*OUTSIDE, "workspace")), peak["workspace"]
    )


def _with_arithmetic_of(memory: MemoryStrategyConfig) -> list[MemoryStrategyConfig]:
    """The strategies, with the exactness of reversible stages that a run is configured with."""
    return [
        type(each)(**{**vars(each), "exact": memory.exact, "exact_bits": memory.exact_bits}) for each in CHOSEN_FROM
    ]
