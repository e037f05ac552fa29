"""The effective batch of a run: as given, or what fits a small corpus."""

from __future__ import annotations

import logging

from svtoolkit.config import TrainerConfig
from svtoolkit.crops.sampler import fitting_batch_size

log = logging.getLogger(__name__)


def wanted_batch_size(trainer: TrainerConfig) -> int:
    """Crops of an optimizer step where the corpus is large enough."""
    return trainer.max_batch_size if trainer.batch_size is None else trainer.batch_size


def choose_batch_size(trainer: TrainerConfig, entries: int, processes: int = 1, tuples_of: int = 1) -> int:
    """Crops of an optimizer step: as given; without a number what fits, which the log says where that is less.

    Args:
        trainer: of the run.
        entries: crops an epoch of the training set.
        processes: that share the batch.
        tuples_of: crops that come together; see ``ClassTuples``.
    """
    wanted = wanted_batch_size(trainer)
    if trainer.batch_size is not None or entries >= wanted:
        return wanted
    fitting = min(wanted, fitting_batch_size(entries, processes, trainer.micro_batch or tuples_of))
    log.info(
        "trainer.batch_size is %d instead of %d: %d crops an epoch (utterances x data.speeds x data.warps) make %d "
        "steps of it; optim.lr stays as it is; trainer.batch_size=N takes N",
        fitting, wanted, entries, entries // fitting,
    )  # fmt: skip
    return fitting
