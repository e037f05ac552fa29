"""What a run will take, before it begins: arithmetic, memory, disk and days."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from svtoolkit.config import MemoryPredictionConfig, TrainConfig
from svtoolkit.crops.class_tuples import tuple_size
from svtoolkit.crops.sampler import share_of
from svtoolkit.distributed.world import CPU
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.operations import Operations
from svtoolkit.planning.assembly import build_trainable
from svtoolkit.planning.memory_prediction import StepMemory, predict_memory
from svtoolkit.planning.micro_batch import PROBE, largest_divisor, step_of
from svtoolkit.planning.teacher import build_teacher

GPU_BYTES = 11 * 10**9
"""Of a 2080 Ti, which is taken where no GPU is at hand."""

GPU_RATE = 7e12
"""Operations a second that it sustains, by assumption: half of what it can do in float32."""

SECONDS_A_DAY = 86400


@dataclass(frozen=True)
class RunForecast:
    """What a run takes, as predicted.

    Attributes:
        steps: optimizer steps of the run.
        epochs: that they are divided into.
        batch_size: crops of a step on all devices.
        share: crops of a step that a device computes.
        wanted_micro_batch: most of them at once, as configured; None: as many as fit.
        memory: of a step on a few crops.
        operations: floating-point operations of forward and backward pass of a crop, recomputation included; a
            multiplication with addition is two.
        disk_bytes: of the states and the weights of epochs that are kept.
    """

    steps: int
    epochs: int
    batch_size: int
    share: int
    wanted_micro_batch: int | None
    tuples_of: int
    memory: StepMemory
    operations: float
    disk_bytes: float

    def micro_batch(self, limit: int | None) -> int:
        """Crops at once on a device of so many bytes; None: one without a limit."""
        if self.wanted_micro_batch is not None or limit is None or self.share == 1:
            return min(self.share, self.wanted_micro_batch or self.share)
        return largest_divisor(self.memory, self.share, limit, self.tuples_of)

    def peak_bytes(self, limit: int | None) -> float:
        """Bytes of tensors at the peak of a step with that micro-batch."""
        return self.memory.peak_of(self.micro_batch(limit))

    @property
    def all_operations(self) -> float:
        """Of the run."""
        return self.operations * self.steps * self.batch_size

    def seconds(self, rate: float, devices: int = 1) -> float:
        """Of the run on devices that each make so many operations a second."""
        return self.all_operations / (rate * devices)

    def epochs_within(self, seconds: float, rate: float, devices: int = 1) -> int:
        """Whole epochs that end in that time."""
        return int(self.epochs * seconds / self.seconds(rate, devices))


def forecast_run(config: TrainConfig, steps: int, batch_size: int, num_classes: int) -> RunForecast:
    """Predict what a run takes.

    Args:
        config: of the run.
        steps: optimizer steps of the run.
        batch_size: crops of a step on all devices.
        num_classes: of the head.
    """
    trainer = config.trainer
    share = share_of(batch_size, trainer.devices)
    probe = step_of(config, max(2, min(PROBE, share)), num_classes, trainer.devices)
    memory = predict_memory(probe)
    operations, network_bytes, teacher_bytes = _count(probe)
    highest = memory.whole.highest
    trained = highest["weights"] - teacher_bytes
    return RunForecast(
        steps=steps,
        epochs=trainer.epochs,
        batch_size=batch_size,
        share=share,
        wanted_micro_batch=trainer.micro_batch,
        tuples_of=tuple_size(config.pairwise),
        memory=memory,
        operations=operations,
        disk_bytes=trainer.keep_states * (trained + highest["optimizer_state"] + highest["averages"])
        + min(trainer.epochs, trainer.keep_last + trainer.keep_best) * network_bytes,
    )


def _count(step: MemoryPredictionConfig) -> tuple[float, int, int]:
    """Operations of forward and backward pass of one crop over a whole head, bytes of the network's state, and of the
    weights of a larger network that is learnt from, whose pass is among the operations.
    """
    with QuickFakeTensorMode():
        network, head, _, _ = build_trainable(
            step.model, step.memory, replace(step.loss, shard=False), step.optim,
            num_bins=step.num_bins, num_classes=step.num_classes, device=CPU, channels_last=step.channels_last,
            frames=step.frames, precision=step.precision,
        )  # fmt: skip
        crops = torch.randn(step.batch_size, step.frames, step.num_bins)
        labels = torch.zeros(step.batch_size, dtype=torch.int64)
        teacher = build_teacher(step, CPU)
        with Operations() as operations:
            if teacher is not None:
                teacher(crops, step.precision)
            head(network(crops), labels).losses.sum().backward()
        state = sum(tensor.nbytes for tensor in network.state_dict().values())
        theirs = 0 if teacher is None else sum(parameter.nbytes for parameter in teacher.parameters())
        return operations.count / step.batch_size, state, theirs
