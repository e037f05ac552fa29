"""The margin as a function of the optimizer step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from svtoolkit.errors import UserError

NAMES = ("constant", "linear", "exponential")


@dataclass(frozen=True)
class MarginSchedule:
    """From ``initial`` to ``final`` between two positions of the run.

    exponential is WeSpeaker's ramp: 1 - exp(share * ln(1e-3 / (1 + 1e-6))), 99.9 % of the way at its end. WeSpeaker
    counts epochs from 1: its increase_start_epoch 20 is the step after 19 finished epochs.

    Args:
        name: shape of the ramp.
        initial, final: margin before and after it.
        start, end: shares of the run that are over when it begins and when it ends, from 0 to 1.
        total_steps: optimizer steps of the run.

    Raises:
        UserError: unknown name, a margin that would fall, or an end before the start.
    """

    name: str
    initial: float
    final: float
    start: float
    end: float
    total_steps: int

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UserError(f"margin_schedule.name is {self.name!r}, expected one of {', '.join(NAMES)}")
        if self.name == "constant" and (self.initial or self.start or self.end):
            raise UserError(
                "margin_schedule=constant has no ramp; set margin_schedule.initial, start and end to 0, or choose "
                "margin_schedule=linear"
            )
        if not 0 <= self.initial <= self.final:
            raise UserError(
                f"margin_schedule.initial is {self.initial} and loss.margin is {self.final}; "
                "expected 0 <= initial <= margin"
            )
        if not 0 <= self.start <= self.end <= 1:
            raise UserError(
                f"margin_schedule.start is {self.start} and margin_schedule.end is {self.end}; expected shares of the "
                "run, 0 <= start <= end <= 1"
            )

    def __call__(self, step: int) -> float:
        """Margin for the update that follows ``step`` finished ones."""
        start, end = self.start * self.total_steps, self.end * self.total_steps
        if self.name == "constant" or step >= end:
            return self.final
        if step < start:
            return self.initial
        share = (step - start) / (end - start)
        if self.name == "exponential":
            share = 1.0 - math.exp(share * math.log(1e-3 / (1 + 1e-6)))
        return self.initial + (self.final - self.initial) * share
