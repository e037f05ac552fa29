"""One optimizer step: micro-batches in, an update (or a reasoned refusal to update) out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from svtoolkit.data.crops import CropBatch
from svtoolkit.data.spec_augment import SpecAugment
from svtoolkit.device import autocast
from svtoolkit.losses import ClassificationHead
from svtoolkit.training.meters import Meter


@dataclass
class StepResult:
    """What a step did.

    Attributes:
        meter: its sums.
        nonfinite_entries: rows of the training set that kept it from updating: those whose samples are not finite if
            there are any (BatchNorm hands their NaN on to the rest), else those of a loss or gradient that is not.
    """

    meter: Meter
    nonfinite_entries: list[int]


class OptimizerStep:
    """Gradient of the mean loss over the effective batch, whatever number of micro-batches it comes in.

    A step whose loss or gradient is not finite changes nothing: neither weights nor optimizer state nor BatchNorm
    statistics. Under fp16 an overflow of the scaled gradient is the scaler's business: it skips and lowers its scale,
    until nothing is left to lower.
    """

    def __init__(
        self,
        front_end: nn.Module,
        network: nn.Module,
        head: ClassificationHead,
        optimizer: torch.optim.Optimizer,
        spec_augment: SpecAugment,
        *,
        device: torch.device,
        precision: str,
        batch_size: int,
        micro_batch: int,
        gradient_clip: float | None,
    ) -> None:
        self.front_end = front_end
        self.network = network
        self.head = head
        self.optimizer = optimizer
        self.spec_augment = spec_augment
        self.device = device
        self.precision = precision
        self.batch_size = batch_size
        self.accumulation = batch_size // micro_batch
        self.gradient_clip = float("inf") if gradient_clip is None else gradient_clip
        self.parameters = [p for module in (network, head) for p in module.parameters() if p.requires_grad]
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def __call__(self, batches: Iterator[CropBatch]) -> StepResult:
        begin = time.perf_counter()
        meter, nonfinite, seen = Meter(), [], []
        buffers = [buffer.clone() for buffer in self.network.buffers()]
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self.accumulation):
            asked = time.perf_counter()
            batch = next(batches)
            meter.waiting += time.perf_counter() - asked
            seen += batch.entries.tolist()
            losses = self._backward(batch, meter)
            nonfinite += _nonfinite_entries(batch, losses.cpu())
        if not nonfinite and not self._update():
            nonfinite = seen
        if nonfinite:
            with torch.no_grad():
                for buffer, before in zip(self.network.buffers(), buffers, strict=True):
                    buffer.copy_(before)
        meter.seconds = time.perf_counter() - begin
        return StepResult(meter, nonfinite)

    def _backward(self, batch: CropBatch, meter: Meter) -> Tensor:
        """Add the gradient of a micro-batch; returns its losses, (micro_batch,)."""
        batch = CropBatch(*(tensor.to(self.device, non_blocking=True) for tensor in batch))
        with torch.no_grad():
            features = self.spec_augment.apply(self.front_end(batch.waveforms), batch.masks)
        with autocast(self.device, self.precision):
            embeddings = self.network(features)
        output = self.head(embeddings, batch.labels)
        self.scaler.scale(output.losses.sum() / self.batch_size).backward()
        losses = output.losses.detach()
        meter.loss += float(losses.sum())
        meter.correct += int(output.correct.sum())
        meter.correct_no_margin += int(output.correct_no_margin.sum())
        meter.crops += len(batch.labels)
        return losses

    def _update(self) -> bool:
        """Clip and step; False where the gradient is not finite and a lower scale cannot help."""
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.gradient_clip)
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
