"""Whether a run learns: one warning where its loss stays that of guessing, or its weights explode."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from svtoolkit.training.run_schedule import RunSchedule

log = logging.getLogger(__name__)

SETTLED_STEPS, SETTLED_SHARE = 200, 0.1
"""Steps, and share of the run, after the warm-up from which on a run has had the time to learn something."""

TIMES_CHANCE = 10
"""A run whose accuracy without margin is so many times that of guessing learns, however high its loss is."""

LARGEST_GROWTH = 30.0
"""Norm of the weights relative to that at the beginning; the mini recipe ends at 1.4."""


class LearningCheck:
    """Looks at every epoch of a run and warns once.

    Args:
        schedule: of the run.
        num_classes: of the head; a network that knows nothing of them has the loss ln(num_classes), and more by the
            margin.
        weights: of the network, as they are when the run begins or is resumed.
    """

    def __init__(self, schedule: RunSchedule, num_classes: int, weights: Iterable[Tensor]) -> None:
        self.schedule = schedule
        self.num_classes = num_classes
        self.weights = list(weights)
        self._norm = self._measure()
        self._has_warned = False

    def look(self, step: int, averages: Mapping[str, float]) -> None:
        """Warn where an epoch that ends with ``step`` shows that nothing is learnt.

        Args:
            averages: loss and accuracy_no_margin of the epoch.
        """
        problem = None if self._has_warned else self._explain(step, averages)
        if problem is not None:
            self._has_warned = True
            log.warning("step %d: %s", step, problem)

    def _explain(self, step: int, averages: Mapping[str, float]) -> str | None:
        rate = self.schedule.learning_rate
        growth = self._measure() / self._norm if self._norm else 1.0
        if not growth <= LARGEST_GROWTH:
            return (
                f"the weights of the network are {growth:.3g} times as large as when the run began: "
                f"optim.lr={rate.lr:g} is too high; lower it, and start again in another exp_dir"
            )
        settled = rate.warmup_steps + max(SETTLED_STEPS, SETTLED_SHARE * rate.total_steps)
        chance = min(TIMES_CHANCE / self.num_classes, 0.5)
        loss, accuracy = averages["loss"], averages["accuracy_no_margin"]
        if step < settled or loss < math.log(self.num_classes) or accuracy > chance:
            return None
        return (
            f"the run does not learn: the loss of the epoch is {loss:.2f}, that of guessing among {self.num_classes} "
            f"classes {math.log(self.num_classes):.2f}, and {100 * accuracy:.2f} % of its crops are told right; lower "
            f"optim.lr={rate.lr:g}, lengthen schedule.warmup, or check utt2spk and the audio with `svt validate`"
        )

    def _measure(self) -> float:
        """Norm of all weights, as of one vector."""
        with torch.no_grad():
            return float(torch.nn.utils.get_total_norm(self.weights)) if self.weights else 0.0
