"""The shape of a run in optimizer steps: how many there are, and what learning rate and margin each has."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from svtoolkit.config import TrainConfig
from svtoolkit.losses import MarginSchedule
from svtoolkit.optim import LearningRateSchedule


@dataclass(frozen=True)
class RunSchedule:
    """Steps, learning rate and margin of a run."""

    steps_per_epoch: int
    total_steps: int
    learning_rate: LearningRateSchedule
    margin: MarginSchedule


def build_run_schedule(config: TrainConfig, steps_per_epoch: int) -> RunSchedule:
    """The schedule as configured.

    Raises:
        UserError: a position or value that the schedules refuse.
    """
    total = steps_per_epoch * config.trainer.epochs
    learning_rate = LearningRateSchedule(**asdict(config.schedule), lr=config.optim.lr, total_steps=total)
    margin = MarginSchedule(**asdict(config.margin_schedule), final=config.loss.margin, total_steps=total)
    return RunSchedule(steps_per_epoch, total, learning_rate, margin)
