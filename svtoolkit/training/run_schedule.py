"""The shape of a run in optimizer steps: how many there are, and what learning rate and margin each has."""

from __future__ import annotations

from dataclasses import dataclass

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
    learning_rate = LearningRateSchedule(
        config.schedule.name,
        peak_lr=config.optim.lr,
        final_lr=config.schedule.final_lr,
        initial_lr=config.schedule.initial_lr,
        warmup_steps=config.schedule.warmup_epochs * steps_per_epoch,
        total_steps=total,
    )
    margin = MarginSchedule(
        config.margin_schedule.name,
        initial=config.margin_schedule.initial,
        final=config.loss.margin,
        start_step=config.margin_schedule.start_epoch * steps_per_epoch,
        end_step=config.margin_schedule.end_epoch * steps_per_epoch,
    )
    return RunSchedule(steps_per_epoch, total, learning_rate, margin)
