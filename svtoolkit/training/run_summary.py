"""What the log says of a run before its first step, and what utterances are called in messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from svtoolkit.config import TrainConfig
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.device import leaves_mps_idle
from svtoolkit.planning.memory_layout import fails_in_channels_last
from svtoolkit.training.run_schedule import RunSchedule
from svtoolkit.training.step import OptimizerStep

log = logging.getLogger(__name__)

NAMED_UTTERANCES = 10
"""In one message."""


def log_run(
    config: TrainConfig, data: TrainingData, step: OptimizerStep, schedule: RunSchedule, micro_batch: int, strategy: str
) -> None:
    """Log network, data, effective batch and device of a run."""
    weights = sum(parameter.numel() for parameter in step.network.parameters())
    frozen = sum(parameter.numel() for parameter in step.network.parameters() if not parameter.requires_grad)
    log.info(
        "%s: %.2f M parameters%s, embedding of %d; memory strategy: %s",
        config.model.name, weights / 1e6, f", {frozen / 1e6:.2f} M of them frozen" if frozen else "",
        config.model.embedding_dim, strategy,
    )  # fmt: skip
    if config.trainer.channels_last and fails_in_channels_last(step.network, step.device):
        reason = "on the CPU networks this narrow fail in it (a fault of oneDNN)"
        log.info(
            "trainer.channels_last is left out: %s",
            reason if step.device.type == "cpu" else "on mps BatchNorm has wrong gradients in it",
        )
    data.announce()
    devices = f"{step.world.size} devices x " if step.world.size > 1 else ""
    log.info(
        "effective batch %d = %s%d x %d accumulated; %d epochs x %d steps = %d; peak learning rate %g, as configured",
        step.batch_size, devices, micro_batch, step.accumulation,
        config.trainer.epochs, schedule.steps_per_epoch, schedule.total_steps, config.optim.lr,
    )  # fmt: skip
    if leaves_mps_idle(config.trainer.device):
        log.info("this Mac's GPU is not used: trainer.device=mps takes it, in float32; it was never tried there")
    log.info("%s, %s, %d CPU threads", step.device, config.trainer.precision, torch.get_num_threads())


def name_utterances(training_set: TrainingSet, entries: Sequence[int]) -> str:
    """Entries of the training set as utterances, speeds and warps, the first ten of them."""
    rows = [training_set.entry(entry) for entry in entries[:NAMED_UTTERANCES]]
    warps = [f", warp {factor:g}" if len(training_set.warps) > 1 else "" for factor in training_set.warps]
    names = [
        f"{training_set.utterances[row].utterance_id} (speed {speed:g}{warps[warp]})" for row, speed, warp, _ in rows
    ]
    more = len(entries) - NAMED_UTTERANCES
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
