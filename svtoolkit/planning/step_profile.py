"""A training step as it grows with its batch: one step on fake tensors tells memory and work of any other batch.

The step is run on a batch of a large prime, so that the size of every storage tells whether it grows with the batch: it
is a multiple of that prime, or it is not. Each moment is then a straight line in the batch, and the peak the highest of
all of them, exactly, as long as the same operations run for any batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException

from svtoolkit.config import AdamW8bitConfig, MemoryPredictionConfig, MemoryStrategyConfig, OptimConfig, SGD8bitConfig
from svtoolkit.device import autocast
from svtoolkit.distributed.world import CPU
from svtoolkit.losses import Head
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.measurement import StepRecord, record_step
from svtoolkit.memory.operations import Work, WorkLog
from svtoolkit.memory.step_report import ACTIVATIONS, BACKWARD, FORWARD, GRADIENTS, INPUT, TRANSIENTS
from svtoolkit.optim import OPTIMIZERS, build_optimizer
from svtoolkit.planning.assembly import build_trainable, for_crops
from svtoolkit.planning.memory_prediction import UnpredictableError, fake_world

PRIMES = (1_000_003, 1_000_033, 1_000_037, 1_000_039)
SMALLEST_OF_8_BITS = 4096
"""Values from which on a parameter has 8-bit state."""
CHUNKS = 2**21
"""Values that all those with 8-bit state are like: two chunks of an optimizer."""
SAMPLES_PER_FRAME = 160
"""Of the waveform that a crop comes as, which stays through the step: 10 ms of 16 kHz."""


class Level(NamedTuple):
    """One moment: bytes that any batch takes, and bytes that each crop adds; weights and optimizer state are left out.

    Attributes:
        gradients: of the fixed bytes, those of gradients.
        activations, transients: bytes of each crop by what they are for.
    """

    fixed: int
    per_crop: float
    gradients: int
    activations: float
    transients: float

    def bytes(self, crops: int) -> float:
        return self.fixed + self.per_crop * crops


@dataclass(frozen=True)
class StepProfile:
    """Forward and backward pass of a network and its head under one strategy, in one precision.

    Attributes:
        strategy: in force.
        weights: bytes of weights and buffers, the copy of the buffers that a step goes back to among them.
        gradients: bytes of all gradients, the buckets of several devices among them.
        levels: moments that are highest for some batch.
        accumulating: the same, where gradients of an earlier micro-batch are there already.
        work: each operation, and how often it runs.
        largest_convolution: bytes of input and result of each crop, of the convolution where that is most.
        fewest: crops that a forward pass takes: 2 where a BatchNorm has one value of each crop.
    """

    strategy: str
    weights: int
    gradients: int
    levels: list[Level]
    accumulating: list[Level]
    work: list[tuple[Work, int]]
    largest_convolution: float
    fewest: int

    def highest(self, crops: int, *, accumulates: bool = False) -> Level:
        """The moment of the peak of a batch."""
        return max(self.accumulating if accumulates else self.levels, key=lambda level: level.bytes(crops))

    def peak_bytes(self, crops: int, *, accumulates: bool = False) -> float:
        """Bytes of tensors at the peak of forward and backward pass, without the optimizer's state."""
        return self.weights + self.highest(crops, accumulates=accumulates).bytes(crops)

    @cached_property
    def counted(self) -> dict[Work, int]:
        """The work by itself."""
        return dict(self.work)

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> StepProfile:
        """What ``dataclasses.asdict`` made of one, after JSON."""
        return cls(
            **{
                **stored,
                "levels": [Level(*each) for each in stored["levels"]],
                "accumulating": [Level(*each) for each in stored["accumulating"]],
                "work": [(Work(*work), times) for work, times in stored["work"]],
            }
        )


@dataclass(frozen=True)
class UpdateProfile:
    """An optimizer's step, which knows no batch.

    Attributes:
        state: bytes of its state.
        transients: the most that comes and goes in the step.
        work: each operation, and how often it runs.
    """

    state: int
    transients: int
    work: list[tuple[Work, int]]

    @cached_property
    def counted(self) -> dict[Work, int]:
        """The work by itself."""
        return dict(self.work)

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> UpdateProfile:
        """As for ``StepProfile``."""
        return cls(**{**stored, "work": [(Work(*work), times) for work, times in stored["work"]]})


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
        yield Profiler(question, network, head, world.size)


class Profiler:
    """Steps of one network and its head on fake tensors."""

    def __init__(self, question: MemoryPredictionConfig, network: nn.Module, head: Head, devices: int) -> None:
        self.question, self.network, self.head = question, network, head
        self.parameters = [p for module in (network, head) for p in module.parameters() if p.requires_grad]
        replicated = [network, *([head] if head.is_replicated else [])]
        self.buckets = 0
        if devices > 1:  # of DistributedDataParallel
            self.buckets = sum(p.nbytes for module in replicated for p in module.parameters() if p.requires_grad)
        sizes = [tensor.numel() for module in (network, head) for tensor in (*module.parameters(), *module.buffers())]
        self.batch = next(prime for prime in PRIMES if all(size % prime for size in sizes if size))

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
        features = torch.randn(self.batch, question.frames, question.num_bins)
        labels = torch.zeros(self.batch, dtype=torch.int64)

        def forward() -> Tensor:
            with autocast(CPU, half):
                embeddings = self.network(features)
            losses = self.head(embeddings, labels).losses
            return losses.sum() / len(losses)

        ledger, arrivals = MemoryLedger(), {}
        hooks = [
            p.register_post_accumulate_grad_hook(lambda p: arrivals.update(_arrival(ledger, p)))
            for p in self.parameters
        ]
        try:
            with WorkLog(self.batch) as log:
                modules = [self.network, self.head]
                record = record_step(modules, forward, inputs=[features, labels], warm_up=0, ledger=ledger)
        finally:
            for hook in hooks:
                hook.remove()
        buffers = sum(b.nbytes for module in (self.network, self.head) for b in module.buffers())
        gradients = sum(p.nbytes for p in self.parameters)
        begin = len(ledger.changes) - sum(map(len, record.changes.values()))
        levels, later = [], []
        for level, on_its_way in self._levels(record, arrivals, begin):
            levels.append(level)
            later.append(level._replace(fixed=level.fixed - level.gradients + gradients + on_its_way))
        return StepProfile(
            strategy=strategy,
            weights=sum(p.nbytes for module in (self.network, self.head) for p in module.parameters()) + 2 * buffers,
            gradients=gradients + self.buckets,
            levels=envelope(levels),
            accumulating=envelope(later),
            work=list(log.take().items()),
            largest_convolution=log.largest_convolution,
            fewest=2 if log.has_norm_of_batch else 1,
        )

    def profile_update(self, optim: OptimConfig) -> UpdateProfile:
        """An optimizer's step on all weights.

        Raises:
            UnpredictableError: what it does depends on values.
        """
        try:
            parts = [(_update_of(weights, optim), times) for weights, times in _parts(self.parameters, optim)]
        except DataDependentOutputException as error:
            raise UnpredictableError(
                f"the memory of the optimizer {optim.name} cannot be predicted: its update depends on values, and a "
                "prediction has none; choose another optimizer"
            ) from error
        work: Counter[Work] = Counter()
        for part, times in parts:
            work.update({each: math.ceil(count * times) for each, count in part.work})
        return UpdateProfile(
            state=math.ceil(sum(part.state * times for part, times in parts)),
            transients=max(part.transients for part, _ in parts),
            work=list(work.items()),
        )

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
        growing: Counter[str] = Counter()
        on_their_way: dict[int, int] = {}

        def add(storage: int, size: int) -> None:
            kind = record.kinds.get(storage, TRANSIENTS)
            if size % self.batch:
                fixed[kind] += size
            else:
                growing[kind] += size // self.batch

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
            for arrived in [each for each in on_their_way if arrivals.get(each, number + 1) <= number]:
                del on_their_way[arrived]
            if kind == GRADIENTS:
                on_their_way[storage] = on_their_way.get(storage, 0) + difference
            level = Level(
                fixed.total() + self.buckets,
                growing.total() + waveforms,
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


def _parts(parameters: Sequence[nn.Parameter], optim: OptimConfig) -> list[tuple[list[nn.Parameter], float]]:
    """Weights to be updated in the place of all, and how often they stand for them.

    An optimizer of ours treats values alike, so that a few tensors do for many. One with 8-bit state goes through them
    in chunks, and those of fewer than 4096 values are apart.
    """
    if optim.name not in OPTIMIZERS.rows:
        return [(list(parameters), 1.0)]
    if not isinstance(optim, (SGD8bitConfig, AdamW8bitConfig)):
        return [(_weights_of(sum(p.numel() for p in parameters)), 1.0)]
    large = sum(p.numel() for p in parameters if p.numel() >= SMALLEST_OF_8_BITS)
    small = sum(p.numel() for p in parameters if p.numel() < SMALLEST_OF_8_BITS)
    count, rest = divmod(small, SMALLEST_OF_8_BITS - 1)
    chunks = min(large, CHUNKS)
    return [
        (_weights_of(*[SMALLEST_OF_8_BITS - 1] * count, rest), 1.0),
        (_weights_of(chunks), large / max(1, chunks)),
    ]


def _weights_of(*sizes: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(size)) for size in sizes if size]


def _update_of(weights: Sequence[nn.Parameter], optim: OptimConfig) -> UpdateProfile:
    if not weights:
        return UpdateProfile(0, 0, [])
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer = build_optimizer(weights, **asdict(optim))
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None:
            group["foreach"] = True  # torch's choice on CUDA
    with MemoryLedger() as ledger:
        ledger.count([*weights, *(weight.grad for weight in weights if weight.grad is not None)])
        known = sum(ledger.live().values())
        optimizer.step()
        state = sum(ledger.live().values()) - known
        begin = len(ledger.changes)
        with WorkLog(PRIMES[0]) as log:
            optimizer.step()
        changes = ledger.changes[begin:]
    optimizer.zero_grad()
    highest = max(accumulate((change.difference for change in changes), initial=0))
    return UpdateProfile(state, highest, list(log.take().items()))


def envelope(levels: Iterable[Level]) -> list[Level]:
    """Those that are highest for some batch from 1 on, in the order of their slopes."""
    highest: list[Level] = []
    for level in sorted(set(levels), key=lambda each: (each.per_crop, each.fixed)):
        while highest and (
            level.bytes(1) >= highest[-1].bytes(1)
            or (len(highest) > 1 and _crossing(highest[-2], level) <= _crossing(highest[-2], highest[-1]))
        ):
            highest.pop()
        highest.append(level)
    return highest


def _crossing(lower: Level, steeper: Level) -> float:
    """The batch from which on the steeper of two is higher."""
    if steeper.per_crop == lower.per_crop:
        return 0.0 if steeper.fixed >= lower.fixed else float("inf")
    return (lower.fixed - steeper.fixed) / (steeper.per_crop - lower.per_crop)
