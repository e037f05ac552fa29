"""The learning rate as a function of the optimizer step: closed forms, so that any step can be resumed at."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal

from svtoolkit.errors import UserError

NAMES = ("exponential", "cosine", "one_cycle")


@dataclass(frozen=True)
class LearningRateSchedule:
    """Rise to ``lr`` over a share of the run, then fall to ``end_factor * lr`` at its end.

    - exponential: WeSpeaker's ExponentialDecrease; the decay exp(share * ln(end_factor)) runs from step 0 over the
      whole training, and the linear warm-up multiplies it.
    - cosine: linear warm-up, then half a cosine over the steps that remain (Loshchilov & Hutter, ICLR 2017, eq. 5).
    - one_cycle: half a cosine up, half a cosine down (Smith & Topin 2019).

    Args:
        name: shape of the curve.
        lr: peak learning rate.
        warmup: share of the run, from 0 to below 1.
        start_factor: of lr at step 0 where there is a warm-up, as of ``torch.optim.lr_scheduler.LinearLR``.
        end_factor: of lr at the last step.
        total_steps: optimizer steps of the run.

    Raises:
        UserError: unknown name, factors that make no rise or no fall, or a warm-up as long as the training.
    """

    name: str
    lr: float
    warmup: float
    start_factor: float
    end_factor: float
    total_steps: int
    warmup_steps: float = field(init=False)
    start_lr: float = field(init=False)
    end_lr: float = field(init=False)

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UserError(f"schedule.name is {self.name!r}, expected one of {', '.join(NAMES)}")
        if not 0 < self.lr < math.inf:
            raise UserError(f"optim.lr is {self.lr}, expected a number above 0")
        if not 0 < self.end_factor <= 1:
            raise UserError(f"schedule.end_factor is {self.end_factor}, expected a factor of optim.lr above 0, up to 1")
        if not 0 <= self.start_factor <= 1:
            raise UserError(f"schedule.start_factor is {self.start_factor}, expected a factor of optim.lr from 0 to 1")
        if not 0 <= self.warmup < 1:
            raise UserError(f"schedule.warmup is {self.warmup}, expected a share of the run from 0 to below 1")
        object.__setattr__(self, "warmup_steps", as_written(self.warmup, self.total_steps))
        object.__setattr__(self, "start_lr", as_written(self.start_factor, self.lr))
        object.__setattr__(self, "end_lr", as_written(self.end_factor, self.lr))

    def __call__(self, step: int) -> float:
        """Rate for the update that follows ``step`` finished ones."""
        rise = min(step / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        if self.name == "exponential":
            share = min(step / self.total_steps, 1.0)
            decay = math.exp(share * math.log(self.end_lr / self.lr))
            return (self.start_lr + (self.lr - self.start_lr) * rise) * decay
        if rise < 1.0:
            share = rise if self.name == "cosine" else 0.5 - 0.5 * math.cos(math.pi * rise)
            return self.start_lr + (self.lr - self.start_lr) * share
        fallen = (step - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return self.end_lr + (self.lr - self.end_lr) * (0.5 + 0.5 * math.cos(math.pi * min(fallen, 1.0)))


def as_written(share: float, whole: float) -> float:
    """Their product in decimal: 0.1 of 0.1 is the float that one writes as 0.01, not the one above it."""
    return float(Decimal(repr(share)) * Decimal(repr(whole)))
