"""One optimizer step: micro-batches in, an update out, or the reason why there was none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, field

import torch
from torch import Tensor, nn

from svtoolkit.augmentation.augmenter import UNCHANGED, Augmenter
from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.compression.penalty import Penalty
from svtoolkit.crops.crop import CropBatch
from svtoolkit.device import autocast
from svtoolkit.distributed.replication import Replicas
from svtoolkit.distributed.world import ALONE, World
from svtoolkit.features import FrontEnd
from svtoolkit.losses import AngularPrototypical, Head
from svtoolkit.training.distillation import Teacher
from svtoolkit.training.meters import Meter


@dataclass
class StepResult:
    """What a step did.

    Attributes:
        meter: its sums over all processes.
        nonfinite_entries: rows of the training set that kept it from updating: those whose samples are not finite if
            there are any (BatchNorm hands their NaN on to the rest), else those of a loss or gradient that is not.
        bad: utterances that gave no crop: row of the training set's utterances -> reason.
    """

    meter: Meter
    nonfinite_entries: list[int]
    bad: dict[int, str] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class OptimizerStep:
    """Gradient of the mean loss over the effective batch, whatever number of micro-batches and processes it comes in.

    A step whose loss or gradient is not finite changes nothing: neither weights nor optimizer state nor BatchNorm
    statistics. Under fp16 an overflow of the scaled gradient is left to the scaler: it skips the update and lowers its
    scale, until it cannot be lowered any more.
    """

    front_end: FrontEnd
    network: nn.Module
    head: Head
    optimizer: torch.optim.Optimizer
    spec_augment: SpecAugment
    _: KW_ONLY
    device: torch.device
    precision: str
    batch_size: int
    micro_batch: InitVar[int]
    gradient_clip: float | None
    world: World = ALONE
    augmenter: Augmenter = UNCHANGED
    penalty: Penalty | None = None
    teacher: Teacher | None = None
    pairwise: AngularPrototypical | None = None

    def __post_init__(self, micro_batch: int) -> None:
        self.accumulation = self.batch_size // self.world.size // micro_batch
        of_pairwise = [] if self.pairwise is None else self.pairwise.parameters()
        self.outside_head = [*self.network.parameters(), *of_pairwise]
        self.parameters = [p for p in (*self.outside_head, *self.head.parameters()) if p.requires_grad]
        self.scaler = self.head.build_scaler(self.device, enabled=self.precision == "fp16")
        self.replicas = Replicas(self.network, self.head, self.world, self.pairwise)

    def __call__(self, batches: Iterator[CropBatch]) -> StepResult:
        begin = time.perf_counter()
        meter, nonfinite, seen = Meter(), [], []
        bad: list[tuple[int, str]] = []
        buffers = [buffer.clone() for buffer in self.network.buffers()]
        self.optimizer.zero_grad(set_to_none=True)
        for number in range(self.accumulation):
            asked = time.perf_counter()
            batch = next(batches)
            meter.waiting += time.perf_counter() - asked
            seen += batch.entries.tolist()
            bad += batch.bad.items()
            is_last = number + 1 == self.accumulation
            with nullcontext() if is_last else self.replicas.no_sync():
                losses = self._add_gradient(batch.to(self.device), meter)
            nonfinite += _nonfinite_entries(batch, losses.cpu())
        totals = self.world.all_reduce_sum({**asdict(meter), "nonfinite": len(nonfinite), "bad": len(bad)})
        is_skipped = totals["nonfinite"] > 0
        if not is_skipped and not self._update():
            is_skipped, nonfinite = True, seen
        if is_skipped:
            nonfinite = self.world.all_gather(nonfinite)
            self._restore(buffers)
        if totals["bad"]:
            bad = self.world.all_gather(bad)
        meter = Meter.of(totals)
        meter.seconds = self.world.size * (time.perf_counter() - begin)
        return StepResult(meter, nonfinite, dict(bad))

    def _add_gradient(self, batch: CropBatch, meter: Meter) -> Tensor:
        """Forward, loss, backward of a micro-batch; returns its losses, (micro_batch,)."""
        with torch.no_grad():
            waveforms = batch.waveforms
            if batch.changes:
                waveforms = self.augmenter.apply(waveforms, batch.changes)
            features = self.front_end.features_of(waveforms, batch.warps)
            targets = None if self.teacher is None else self.teacher.embed(waveforms, features, batch.warps)
            features = self.spec_augment.apply(features, batch.masks)
        with autocast(self.device, self.precision):
            embeddings = self.replicas.network(features)
        output = self.replicas.head(embeddings, batch.labels)  # in float32
        losses, distances, compared = output.losses, None, None
        if self.teacher is not None and targets is not None:
            distances = self.teacher.distances(embeddings, targets)
            losses = losses + self.teacher.weight * distances
        if self.pairwise is not None and self.replicas.pairwise is not None:
            compared = self.replicas.pairwise(embeddings, batch.labels)  # in float32, the crops of this micro-batch
            losses = losses + self.pairwise.weight * compared.losses
        # Replicas average their gradients; the mean loss over all crops needs their sum.
        loss = losses.sum() * self.world.size / self.batch_size
        self.scaler.scale(loss).backward()
        # Numbers are read when all is on its way: a GPU is waited for once.
        meter.loss += float(output.losses.detach().sum())
        meter.correct += int(output.correct.sum())
        meter.correct_no_margin += int(output.correct_no_margin.sum())
        meter.crops += len(batch.labels)
        if distances is not None:
            meter.distance += float(distances.detach().sum())
        if self.pairwise is not None and compared is not None:
            meter.pairwise += float(compared.losses.detach().sum()) / self.pairwise.crops
            meter.tuples += int(compared.counted.sum())
            meter.tuples_correct += int(compared.correct.sum())
        return losses.detach()

    def _update(self) -> bool:
        """Clip and update; False where the gradient is not finite and a lower scale cannot help."""
        self.scaler.unscale_(self.optimizer)
        if self.penalty is not None:
            self.penalty.add_gradient()
        limit = float("inf") if self.gradient_clip is None else self.gradient_clip
        norm = self.head.clip_grad_norm_(self.outside_head, limit)
        if not torch.isfinite(norm) and self.scaler.get_scale() <= 1.0:  # without a scaler it is 1
            self.scaler.update()
            return False
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return True

    def _restore(self, buffers: list[Tensor]) -> None:
        """BatchNorm statistics as they were before a step that is skipped."""
        with torch.no_grad():
            for buffer, before in zip(self.network.buffers(), buffers, strict=True):
                buffer.copy_(before)


def _nonfinite_entries(batch: CropBatch, losses: Tensor) -> list[int]:
    """Entries to blame for losses that are not finite; empty where all are."""
    bad_losses = ~torch.isfinite(losses)
    if not bad_losses.any():
        return []
    bad_waveforms = ~torch.isfinite(batch.waveforms).flatten(1).all(dim=1)
    return batch.entries[bad_waveforms if bad_waveforms.any() else bad_losses].tolist()
