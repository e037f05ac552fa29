"""The margin as a function of the optimizer step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from svtoolkit.errors import UserError

NAMES = ("constant", "linear", "exponential")


@dataclass(frozen=True)
class MarginSchedule:
    """From ``initial`` to ``final`` between two optimizer steps.

    exponential is WeSpeaker's ramp: 1 - exp(share * ln(1e-3 / (1 + 1e-6))), 99.9 % of the way at its end. WeSpeaker
    counts epochs from 1: its increase_start_epoch 20 is the step after 19 finished epochs.

    Raises:
        UserError: unknown name, a margin that would fall, or an end before the start.
    """

    name: str
    initial: float
    final: float
    start_step: float
    end_step: float

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UserError(f"margin_schedule.name is {self.name!r}, expected one of {', '.join(NAMES)}")
        if self.name == "constant" and (self.initial or self.start_step or self.end_step):
            raise UserError("margin_schedule=constant has no ramp; set initial, start_epoch and end_epoch to 0")
        if not 0 <= self.initial <= self.final:
            raise UserError(
                f"margin_schedule.initial is {self.initial} and loss.margin is {self.final}; "
                "expected 0 <= initial <= margin"
            )
        if not 0 <= self.start_step <= self.end_step < math.inf:
            raise UserError(
                f"margin_schedule: found start {self.start_step} and end {self.end_step} steps; "
                "expected 0 <= start_epoch <= end_epoch"
            )

    def __call__(self, step: int) -> float:
        """Margin for the update that follows ``step`` finished ones."""
        if self.name == "constant" or step >= self.end_step:
            return self.final
        if step < self.start_step:
            return self.initial
        share = (step - self.start_step) / (self.end_step - self.start_step)
        if self.name == "exponential":
            share = 1.0 - math.exp(share * math.log(1e-3 / (1 + 1e-6)))
        return self.initial + (self.final - self.initial) * share
