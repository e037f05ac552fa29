"""A step of a network on fake tensors, of which the size of every storage tells how it grows with the batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from heapq import heappop, heappush

import torch
from torch import Tensor, nn

from svtoolkit.config import MemoryPredictionConfig, MemoryStrategyConfig, OptimConfig
from svtoolkit.device import autocast
from svtoolkit.distributed.world import CPU
from svtoolkit.losses import Head
from svtoolkit.losses.distillation import cosine_distances
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.growth import Growth
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.measurement import StepRecord, record_step
from svtoolkit.memory.operations import WorkLog
from svtoolkit.memory.step_report import ACTIVATIONS, BACKWARD, FORWARD, GRADIENTS, INPUT, TRANSIENTS
from svtoolkit.optim.weight_average import averaged_tensors
from svtoolkit.planning.assembly import build_trainable, for_crops, outer_parameters
from svtoolkit.planning.memory_prediction import fake_world
from svtoolkit.planning.step_profile import Level, StepProfile, envelope
from svtoolkit.planning.teacher import Teacher, build_teacher
from svtoolkit.planning.update_profile import UpdateProfile, profile_update
from svtoolkit.reversible.parts import two_for_all

SAMPLES_PER_FRAME = 160
"""Of the waveform that a crop comes as, which stays through the step: 10 ms of 16 kHz."""


@contextmanager
def profiler_of(question: MemoryPredictionConfig) -> Iterator[Profiler]:
    """What profiles the steps of a network and its head; both are built once, on fake tensors.

    Args:
        question: network, head, sizes and number of devices; its strategy, precision, optimizer and batch do not count.

    Raises:
        UserError: as the builders of the parts.
    """
    with fake_world(question, CPU) as world, QuickFakeTensorMode():
        network, head, _, _ = build_trainable(
            question.model, MemoryStrategyConfig("store"), question.loss, question.optim,
            num_bins=question.num_bins, num_classes=question.num_classes, device=CPU,
            channels_last=question.channels_last, world=world,
        )  # fmt: skip
        head.margin = question.loss.margin
        for buffer in network.buffers():  # what a counter contains torch would follow through every step
            buffer.constant = None  # type: ignore[attr-defined]
        yield Profiler(question, network, head, world.size, build_teacher(question, CPU))


class Profiler:
    """Steps of one network and its head on fake tensors."""

    def __init__(
        self, question: MemoryPredictionConfig, network: nn.Module, head: Head, devices: int, teacher: Teacher | None
    ) -> None:
        self.question, self.network, self.head, self.teacher = question, network, head, teacher
        self.modules = [network, head, *([teacher] if teacher else [])]
        self.parameters = [p for module in (network, head) for p in module.parameters() if p.requires_grad]
        replicated = [network, *([head] if head.is_replicated else [])]
        self.buckets = 0
        if devices > 1:  # of DistributedDataParallel
            self.buckets = sum(p.nbytes for module in replicated for p in module.parameters() if p.requires_grad)
        self.averages = 0
        if question.ema:
            self.averages = sum(4 * tensor.numel() for tensor in averaged_tensors(network).values())
        sizes = [tensor.numel() for module in self.modules for tensor in (*module.parameters(), *module.buffers())]
        self.growth = Growth(sizes)

    def profile_step(self, memory: MemoryStrategyConfig, precision: str) -> StepProfile:
        """Forward and backward pass under a strategy.

        Raises:
            UserError: the network cannot be under it.
        """
        question = self.question
        # 16-bit types take the same room, and a scaled loss a few numbers: bf16 stands for both.
        half = "fp32" if precision == "fp32" else "bf16"
        for_these = for_crops(memory, question.frames, question.num_bins, half)
        strategy = apply_strategy(self.network, **asdict(for_these))
        features = torch.randn(self.growth.batch, question.frames, question.num_bins)
        labels = torch.zeros(self.growth.batch, dtype=torch.int64)

        def forward() -> Tensor:
            targets = None if self.teacher is None else self.teacher(features, half)
            with autocast(CPU, half):
                embeddings = self.network(features)
            losses = self.head(embeddings, labels).losses
            if targets is not None:
                losses = losses + cosine_distances(embeddings, targets)
            return losses.sum() / len(losses)

        ledger, arrivals = MemoryLedger(), {}
        hooks = [
            p.register_post_accumulate_grad_hook(lambda p: arrivals.update(_arrival(ledger, p)))
            for p in self.parameters
        ]
        try:
            with WorkLog(self.growth) as log, two_for_all(log):
                record = record_step(self.modules, forward, inputs=[features, labels], warm_up=0, ledger=ledger)
        finally:
            for hook in hooks:
                hook.remove()
        buffers = sum(b.nbytes for module in self.modules for b in module.buffers())
        copied = sum(b.nbytes for b in self.network.buffers())
        gradients = sum(p.nbytes for p in self.parameters)
        begin = len(ledger.changes) - sum(map(len, record.changes.values()))
        levels, later = [], []
        for level, on_its_way in self._levels(record, arrivals, begin):
            levels.append(level)
            later.append(level._replace(fixed=level.fixed - level.gradients + gradients + on_its_way))
        return StepProfile(
            strategy=strategy,
            weights=sum(p.nbytes for module in self.modules for p in module.parameters())
            + buffers
            + copied
            + self.averages,
            gradients=gradients + self.buckets,
            levels=envelope(levels),
            accumulating=envelope(later),
            work=list(log.take().items()),
            largest_convolution=log.largest_convolution,
            fewest=2 if log.has_norm_of_batch else 1,
        )

    def profile_update(self, optim: OptimConfig) -> UpdateProfile:
        """As ``update_profile.profile_update``, of all weights."""
        return profile_update(self.parameters, optim, outer_parameters(self.network, self.head))

    def _levels(self, record: StepRecord, arrivals: Mapping[int, int], begin: int) -> Iterator[tuple[Level, int]]:
        """Every moment of forward and backward pass; weights and buffers are left out.

        Args:
            arrivals: storage of a gradient -> number of changes until it is its parameter's.
            begin: number of changes before the step.

        Yields:
            a moment, and the bytes of gradients then that are made and not their parameters' yet: those that an earlier
            micro-batch has left are there beside them.
        """
        fixed: Counter[str] = Counter()
        growing: dict[str, float] = defaultdict(float)
        on_their_way: dict[int, int] = {}
        next_arrivals: list[tuple[int, int]] = []

        def add(storage: int, size: int) -> None:
            kind = record.kinds.get(storage, TRANSIENTS)
            always, per_crop = self.growth.line(abs(size))
            fixed[kind] += always if size > 0 else -always
            growing[kind] += per_crop if size > 0 else -per_crop

        counted = (GRADIENTS, ACTIVATIONS, TRANSIENTS, INPUT)
        for storage, size in record.before.items():
            if record.kinds.get(storage, TRANSIENTS) in counted:
                add(storage, size)
        waveforms = 4 * SAMPLES_PER_FRAME * self.question.frames
        changes = [change for phase in (FORWARD, BACKWARD) for change in record.changes[phase]]
        for number, (storage, difference) in enumerate(changes, begin):
            kind = record.kinds.get(storage, TRANSIENTS)
            if kind not in counted:
                continue
            add(storage, difference)
            while next_arrivals and next_arrivals[0][0] <= number:
                on_their_way.pop(heappop(next_arrivals)[1], None)
            if kind == GRADIENTS:
                on_their_way[storage] = on_their_way.get(storage, 0) + difference
                if storage in arrivals:
                    heappush(next_arrivals, (arrivals[storage], storage))
            level = Level(
                fixed.total() + self.buckets,
                sum(growing.values()) + waveforms,
                fixed[GRADIENTS],
                growing[ACTIVATIONS],
                growing[TRANSIENTS] + growing[INPUT] + waveforms,
            )
            yield level, sum(on_their_way.values())


def _arrival(ledger: MemoryLedger, parameter: Tensor) -> dict[int, int]:
    """Storage of the gradient that a parameter has now -> changes so far."""
    assert parameter.grad is not None, "it was accumulated"
    (storage,) = ledger.count((parameter.grad,))
    return {storage: len(ledger.changes)}
