"""The memory of a training step, measured on a GPU or predicted on fake tensors: no data, no GPU, a few seconds.

Not counted, since none of it grows with the depth of a network: waveforms and filter bank, the copy of BatchNorm's
statistics that a step goes back to, and all that ``MemoryLedger`` cannot see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException

from svtoolkit.config import MemoryPredictionConfig
from svtoolkit.device import autocast, choose_device
from svtoolkit.distributed.world import World
from svtoolkit.errors import UserError
from svtoolkit.losses.distillation import cosine_distances
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.measurement import KnownUpdate, measure_step
from svtoolkit.memory.step_report import PHASES, MemoryReport
from svtoolkit.optim import WeightAverage
from svtoolkit.planning.assembly import build_trainable
from svtoolkit.planning.teacher import build_teacher
from svtoolkit.planning.unpredictable import UnpredictableError
from svtoolkit.system.processes import worker_processes


@dataclass(frozen=True)
class StepMemory:
    """Memory of a step on a whole batch and, where that is more than one utterance, on a single one.

    Attributes:
        strategy: what becomes of the activations.
    """

    batch_size: int
    strategy: str
    whole: MemoryReport
    single: MemoryReport | None

    @property
    def bytes_per_utterance(self) -> float | None:
        """(peak of the whole batch - peak of one utterance) / (batch_size - 1), of the phase where that is most.

        Forward and backward pass grow with the batch, the optimizer step does not: with few utterances and many
        weights it may hold the peak. None where only one utterance was measured.
        """
        slopes = self._slopes()
        return max(slopes.values()) if slopes else None

    def largest_batch(self, budget_bytes: float) -> int | None:
        """Most utterances whose step stays within the budget if every phase keeps growing as measured; 0: none.

        None where only one utterance was measured.
        """
        if self.single is None:
            return None
        fits = []
        for phase, slope in self._slopes().items():
            room = budget_bytes - self.single.phase_peaks[phase]
            if room < 0:
                return 0
            if slope > 0:
                fits.append(1 + math.floor(room / slope))
        return min(fits)

    def peak_of(self, batch_size: int) -> float:
        """Bytes at the peak of a step of another batch, if every phase keeps growing as measured."""
        assert self.single is not None, "two utterances or more were measured"
        return max(self.single.phase_peaks[phase] + slope * (batch_size - 1) for phase, slope in self._slopes().items())

    def _slopes(self) -> dict[str, float]:
        if self.single is None:
            return {}
        one, more = self.single.phase_peaks, self.whole.phase_peaks
        return {phase: (more[phase] - one[phase]) / (self.batch_size - 1) for phase in PHASES}


def predict_memory(
    config: MemoryPredictionConfig, progress: Callable[[str], object] = lambda phase: None, *, growth: bool = True
) -> StepMemory:
    """Memory of the training step that ``config`` describes; of several devices, that of the first.

    On FakeTensorMode's tensors, which have sizes and nothing else; with a CUDA device the step is really run there.
    The first device has no smaller shard of a head than any other.

    Args:
        progress: called with the phase that begins, ``count_phases(config)`` times.
        growth: predict the step of one utterance as well, from which that of other batches follows; without it the
            prediction takes half the time.

    Raises:
        UserError: a number out of range, an unknown name, a device that is not there or too small.
    """
    _check(config)
    if config.loss.shard and dist.is_initialized():  # whose processes a sharded head would talk to
        killed = "the process that predicts the memory of a step was killed, probably because memory ran out"
        with worker_processes(1, killed=killed) as workers:
            return workers.submit(predict_memory, config, growth=growth).result()
    device = choose_device("cpu" if config.device == "auto" else config.device)
    autocast(device, config.precision)  # refuses an unknown precision before any work
    if device.type == "mps":
        raise UserError(
            "device is mps, whose memory is that of the machine and has no limit to fit into; use device=cpu"
        )
    mode = nullcontext() if device.type == "cuda" else QuickFakeTensorMode()
    with fake_world(config, device) as world, mode:
        return _predict(_Step(config, device, world), progress, growth)


@contextmanager
def fake_world(config: MemoryPredictionConfig, device: torch.device) -> Iterator[World]:
    """The processes that this one would be the first of. A sharded head talks to torch's fake process group, whose
    collectives return at once.
    """
    world = World(size=config.devices, local_size=config.devices, device=device)
    if not config.loss.shard:
        yield world
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=config.devices)
    try:
        yield world
    finally:
        dist.destroy_process_group()


def _predict(step: _Step, progress: Callable[[str], object], growth: bool) -> StepMemory:
    config = step.config
    try:
        step.make_optimizer_state()
        whole = step.measure(config.batch_size, progress)
        single = step.measure(1, progress) if growth and config.batch_size > 1 else None
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"batch_size is {config.batch_size}, which {step.device} has no memory for; lower it, or predict the step "
            "with device=cpu"
        ) from error
    except DataDependentOutputException as error:
        raise UnpredictableError(
            f"optim={config.optim.name}",
            "its update depends on values, and a prediction has none; measure it with device=cuda, or choose another "
            "optimizer",
        ) from error
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UserError(
            f"frames={config.frames} num_bins={config.num_bins} is too little for one utterance alone: {error}"
        ) from error
    return StepMemory(config.batch_size, step.strategy, whole, single)


def count_phases(config: MemoryPredictionConfig) -> int:
    """Phases that ``predict_memory`` goes through."""
    return len(PHASES) * (1 + _warm_up(config.device)) * (2 if config.batch_size > 1 else 1)


def _warm_up(device: str) -> int:
    """Steps before the one that counts: in the first on a GPU libraries take workspace that they keep."""
    return 1 if device.startswith("cuda") else 0


def _check(config: MemoryPredictionConfig) -> None:
    for key in ("frames", "batch_size", "devices", "num_classes", "num_bins"):
        value = getattr(config, key)
        if value < 1:
            raise UserError(f"{key} is {value}, expected 1 or more")
    if config.loss.shard and config.devices == 1:
        raise UserError(
            "loss.shard=true needs several devices to divide the classes among, and devices is 1; set devices=N"
        )
    if not 0 < config.budget_gib < math.inf:
        raise UserError(f"budget_gib is {config.budget_gib}, expected a finite number above 0")


class _Step:
    """The arithmetic of ``training.step.OptimizerStep`` on a batch that fits, without its look at the numbers."""

    def __init__(self, config: MemoryPredictionConfig, device: torch.device, world: World) -> None:
        self.config = config
        self.device = device
        self.network, self.head, self.optimizer, self.strategy = build_trainable(
            config.model,
            config.memory,
            config.loss,
            config.optim,
            num_bins=config.num_bins,
            num_classes=config.num_classes,
            device=device,
            channels_last=config.channels_last,
            frames=config.frames,
            precision=config.precision,
            world=world,
        )
        self.teacher = build_teacher(config, device)
        self.head.margin = config.loss.margin
        self.parameters = [p for module in (self.network, self.head) for p in module.parameters() if p.requires_grad]
        replicated = self.parameters if self.head.is_replicated else self.network.parameters()
        trained = [p for p in replicated if p.requires_grad and world.size > 1]
        self.buckets = [torch.empty_like(p) for p in trained]  # of DistributedDataParallel
        self.averages = WeightAverage(self.network, 0.0).weights if config.ema else {}
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "fp16")
        for group in self.optimizer.param_groups:
            if group.get("foreach", False) is None:
                group["foreach"] = True  # torch's choice on CUDA, which is what is predicted
        settled = device.type == "cpu" and not self.scaler.is_enabled()  # whose first update makes tensors of its own
        self.known_update = KnownUpdate() if settled else None

    def make_optimizer_state(self) -> None:
        """As the first step of a run would, at a fraction of its time."""
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()

    def measure(self, batch_size: int, progress: Callable[[str], object]) -> MemoryReport:
        config = self.config
        features = torch.randn(batch_size, config.frames, config.num_bins, device=self.device)
        labels = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        return measure_step(
            [self.network, self.head, *([self.teacher] if self.teacher else [])],
            lambda: self._forward(features, labels),
            inputs=[features, labels],
            buckets=self.buckets,
            averages=list(self.averages.values()),
            optimizer=self.optimizer,
            update=self._update,
            known_update=self.known_update,
            warm_up=_warm_up(self.device.type),
            progress=progress,
        )

    def _forward(self, features: Tensor, labels: Tensor) -> Tensor:
        targets = None if self.teacher is None else self.teacher(features, self.config.precision)
        with autocast(self.device, self.config.precision):
            embeddings = self.network(features)
        losses = self.head(embeddings, labels).losses
        if targets is not None:
            losses = losses + cosine_distances(embeddings, targets)
        return self.scaler.scale(losses.sum() / len(losses))

    def _update(self) -> None:
        """Steps even where a real fp16 gradient overflows: only memory counts here."""
        self.scaler.unscale_(self.optimizer)
        self.head.clip_grad_norm_(self.network.parameters(), float("inf"))
        self.optimizer.step()
        self.scaler.update()
