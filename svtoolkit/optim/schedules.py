"""The learning rate as a function of the optimizer step: closed forms, so that any step can be resumed at."""

from __future__ import annotations

import math
from dataclasses import dataclass

from svtoolkit.errors import UserError

NAMES = ("exponential", "cosine", "one_cycle")


@dataclass(frozen=True)
class LearningRateSchedule:
    """Rise to ``peak_lr`` over ``warmup_steps``, then fall to ``final_lr`` at ``total_steps``.

    - exponential: WeSpeaker's ExponentialDecrease; the decay exp(share * ln(final / peak)) runs from step 0 over the
      whole training, and the linear warm-up multiplies it.
    - cosine: linear warm-up, then half a cosine over the steps that remain (Loshchilov & Hutter, ICLR 2017, eq. 5).
    - one_cycle: half a cosine up, half a cosine down (Smith & Topin 2019).

    Raises:
        UserError: unknown name, rates in the wrong order, or a warm-up as long as the training.
    """

    name: str
    peak_lr: float
    final_lr: float
    initial_lr: float
    warmup_steps: float
    total_steps: int

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UserError(f"schedule.name is {self.name!r}, expected one of {', '.join(NAMES)}")
        if not 0 < self.final_lr <= self.peak_lr < math.inf:
            raise UserError(
                f"schedule.final_lr is {self.final_lr} and optim.lr is {self.peak_lr}; expected 0 < final_lr <= lr"
            )
        if not 0 <= self.initial_lr <= self.peak_lr:
            raise UserError(
                f"schedule.initial_lr is {self.initial_lr} and optim.lr is {self.peak_lr}; "
                "expected 0 <= initial_lr <= lr"
            )
        if not 0 <= self.warmup_steps < self.total_steps:
            raise UserError(
                f"schedule.warmup_epochs means {self.warmup_steps:g} of {self.total_steps} steps; "
                "expected less than trainer.epochs"
            )

    def __call__(self, step: int) -> float:
        """Rate for the update that follows ``step`` finished ones."""
        rise = min(step / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        if self.name == "exponential":
            share = min(step / self.total_steps, 1.0)
            decay = math.exp(share * math.log(self.final_lr / self.peak_lr))
            return (self.initial_lr + (self.peak_lr - self.initial_lr) * rise) * decay
        if rise < 1.0:
            share = rise if self.name == "cosine" else 0.5 - 0.5 * math.cos(math.pi * rise)
            return self.initial_lr + (self.peak_lr - self.initial_lr) * share
        fallen = (step - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return self.final_lr + (self.peak_lr - self.final_lr) * (0.5 + 0.5 * math.cos(math.pi * min(fallen, 1.0)))
