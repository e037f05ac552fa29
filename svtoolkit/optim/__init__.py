"""Optimizers by name, with 32-bit or 8-bit state, and learning-rate schedules counted in optimizer steps."""

from __future__ import annotations

from svtoolkit.optim.builders import build_optimizer
from svtoolkit.optim.eight_bit import AdamW8bit, SGD8bit
from svtoolkit.optim.schedules import LearningRateSchedule

__all__ = ["AdamW8bit", "LearningRateSchedule", "SGD8bit", "build_optimizer"]
