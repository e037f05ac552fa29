"""Optimizers by name and learning-rate schedules counted in optimizer steps."""

from __future__ import annotations

from svtoolkit.optim.builders import build_optimizer
from svtoolkit.optim.schedules import LearningRateSchedule

__all__ = ["LearningRateSchedule", "build_optimizer"]
