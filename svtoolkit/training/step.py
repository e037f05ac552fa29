"""One optimizer step: micro-batches in, an update (or a reasoned refusal to update) out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from svtoolkit.augmentation.augmenter import UNCHANGED, Augmenter
from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.crops.crop import CropBatch
from svtoolkit.distributed.replication import build_learner
from svtoolkit.distributed.sharded_head import ShardedHead
from svtoolkit.distributed.sharding import build_scaler, clip_gradient
from svtoolkit.distributed.world import ALONE, World
from svtoolkit.features import FrontEnd
from svtoolkit.losses import ClassificationHead
from svtoolkit.training.meters import Meter


@dataclass
class StepResult:
    """What a step did.

    Attributes:
        meter: its sums over all processes.
        nonfinite_entries: rows of the training set that kept it from updating: those whose samples are not finite if
            there are any (BatchNorm hands their NaN on to the rest), else those of a loss or gradient that is not.
    """

    meter: Meter
    nonfinite_entries: list[int]


class OptimizerStep:
    """Gradient of the mean loss over the effective batch, whatever number of micro-batches and processes it comes in.

    A step whose loss or gradient is not finite changes nothing: neither weights nor optimizer state nor BatchNorm
    statistics. Under fp16 an overflow of the scaled gradient is the scaler's business: it skips and lowers its scale,
    until nothing is left to lower.
    """

    def __init__(
        self,
        front_end: FrontEnd,
        network: nn.Module,
        head: ClassificationHead | ShardedHead,
        optimizer: torch.optim.Optimizer,
        spec_augment: SpecAugment,
        *,
        device: torch.device,
        precision: str,
        batch_size: int,
        micro_batch: int,
        gradient_clip: float | None,
        world: World = ALONE,
        augmenter: Augmenter = UNCHANGED,
    ) -> None:
        self.augmenter = augmenter
        self.front_end = front_end
        self.network = network
        self.head = head
        self.optimizer = optimizer
        self.spec_augment = spec_augment
        self.device = device
        self.precision = precision
        self.batch_size = batch_size
        self.accumulation = batch_size // world.size // micro_batch
        self.world = world
        self.gradient_clip = float("inf") if gradient_clip is None else gradient_clip
        self.parameters = [p for module in (network, head) for p in module.parameters() if p.requires_grad]
        is_sharded, is_scaled = isinstance(head, ShardedHead), precision == "fp16"
        self.scaler = build_scaler(device, is_scaled) if is_sharded else GradScaler(device.type, enabled=is_scaled)
        self.learner = build_learner(network, head, world, device, precision)

    def __call__(self, batches: Iterator[CropBatch]) -> StepResult:
        begin = time.perf_counter()
        meter, nonfinite, seen = Meter(), [], []
        buffers = [buffer.clone() for buffer in self.network.buffers()]
        self.optimizer.zero_grad(set_to_none=True)
        for number in range(self.accumulation):
            asked = time.perf_counter()
            batch = next(batches)
            meter.waiting += time.perf_counter() - asked
            seen += batch.entries.tolist()
            with nullcontext() if number + 1 == self.accumulation else self.learner.no_sync():
                losses = self._backward(batch, meter)
            nonfinite += _nonfinite_entries(batch, losses.cpu())
        totals = self.world.total({**asdict(meter), "nonfinite": len(nonfinite)})
        is_lost = totals["nonfinite"] > 0
        if not is_lost and not self._update():
            is_lost, nonfinite = True, seen
        if is_lost:
            nonfinite = self.world.gather(nonfinite)
            with torch.no_grad():
                for buffer, before in zip(self.network.buffers(), buffers, strict=True):
                    buffer.copy_(before)
        meter = Meter.of(totals)
        meter.seconds = self.world.size * (time.perf_counter() - begin)
        return StepResult(meter, nonfinite)

    def _backward(self, batch: CropBatch, meter: Meter) -> Tensor:
        """Add the gradient of a micro-batch; returns its losses, (micro_batch,)."""
        batch = batch.to(self.device)
        with torch.no_grad():
            waveforms = batch.waveforms
            if batch.changes:
                waveforms = self.augmenter.apply(waveforms, batch.changes)
            features = self.spec_augment.apply(self.front_end(waveforms), batch.masks)
        output = self.learner(features, batch.labels)
        # Replicas share the mean of their gradients: that of the sum of their losses is as many times larger.
        self.scaler.scale(output.losses.sum() * self.world.size / self.batch_size).backward()
        losses = output.losses.detach()
        meter.loss += float(losses.sum())
        meter.correct += int(output.correct.sum())
        meter.correct_no_margin += int(output.correct_no_margin.sum())
        meter.crops += len(batch.labels)
        return losses

    def _update(self) -> bool:
        """Clip and step; False where the gradient is not finite and a lower scale cannot help."""
        self.scaler.unscale_(self.optimizer)
        norm = clip_gradient(self.network.parameters(), self.head, self.gradient_clip)
        if not torch.isfinite(norm) and self.scaler.get_scale() <= 1.0:  # without a scaler it is 1
            self.scaler.update()
            return False
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return True


def _nonfinite_entries(batch: CropBatch, losses: Tensor) -> list[int]:
    """Entries to blame for losses that are not finite; empty where all are."""
    lost = ~torch.isfinite(losses)
    if not lost.any():
        return []
    heard = ~torch.isfinite(batch.waveforms).all(dim=1)
    return batch.entries[heard if heard.any() else lost].tolist()
