"""A training step under the ledger: any network, loss and optimizer, handed in as callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.memory.ledger import Change, MemoryLedger
from svtoolkit.memory.step_report import (
    ACTIVATIONS,
    AVERAGES,
    BACKWARD,
    BUCKETS,
    BUFFERS,
    FORWARD,
    GRADIENTS,
    INPUT,
    KINDS,
    OPTIMIZER,
    OPTIMIZER_STATE,
    OTHER,
    TRANSIENTS,
    WEIGHTS,
    AllocatorPeak,
    MemoryReport,
    report_step,
)


@dataclass(frozen=True)
class StepRecord:
    """All that happened to storage in a step.

    Attributes:
        before: number of a storage -> bytes, of all that is there when the step begins.
        changes: phase -> what happens in it, in order.
        kinds: number of a storage -> what it is for; what is missing is transient.
        allocator: of a step on CUDA, else None.
    """

    before: Mapping[int, int]
    changes: Mapping[str, Sequence[Change]]
    kinds: Mapping[int, str]
    allocator: AllocatorPeak | None


def measure_step(modules: Sequence[nn.Module], forward: Callable[[], Tensor], **settings: Any) -> MemoryReport:
    """Run training steps and count the memory of the last one; arguments are those of ``record_step``."""
    record = record_step(modules, forward, **settings)
    return report_step(record.before, record.changes, record.kinds, record.allocator)


def record_step(
    modules: Sequence[nn.Module],
    forward: Callable[[], Tensor],
    *,
    inputs: Sequence[Tensor] = (),
    buckets: Sequence[Tensor] = (),
    averages: Sequence[Tensor] = (),
    optimizer: torch.optim.Optimizer | None = None,
    update: Callable[[], object] | None = None,
    known_update: KnownUpdate | None = None,
    warm_up: int = 1,
    progress: Callable[[str], object] = lambda phase: None,
    ledger: MemoryLedger | None = None,
) -> StepRecord:
    """Run training steps and follow every storage through the last one.

    Under FakeTensorMode (where modules, optimizer and inputs have to be made) nothing is computed, and the result is
    that of the same step on real tensors. On CUDA the peak of the allocator is read beside it.

    Args:
        modules: what is trained, all on one device; weights and buffers are theirs.
        forward: the forward pass up to the loss.
        inputs: the batch that ``forward`` works on.
        buckets: in which the gradients of replicas are added up.
        averages: moving averages of the weights.
        optimizer: its state is recognised in it; without one the step ends with the gradients.
        update: of the weights; default ``optimizer.step``.
        known_update: of the same modules and optimizer; an update that is known already is not run again.
        warm_up: steps before the one that counts, after which there is optimizer state.
        progress: called with the phase that begins, once for each phase of each step.
        ledger: that counts; None: one of its own.
    """
    device = next(parameter.device for module in modules for parameter in module.parameters())
    repeats = known_update is not None and known_update.is_filled
    if update is None and optimizer is not None:
        update = optimizer.step
    step = _Step(modules, forward, (lambda: None) if repeats or update is None else update, progress)
    with ledger or MemoryLedger(device.type) as ledger:
        labels = _Labels(ledger, modules, {INPUT: inputs, BUCKETS: buckets, AVERAGES: averages}, optimizer)
        labels.note()
        for _ in range(warm_up):
            for _ in step.phases():
                pass
        step.drop_gradients()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
        labels.note()
        before = ledger.live()
        changes: dict[str, Sequence[Change]] = {}
        begin = len(ledger.changes)
        for phase in step.phases():
            end = len(ledger.changes)
            changes[phase] = ledger.changes[begin:end]
            labels.note_end_of(phase)
            begin = end
        allocator = _allocator_peak(device) if device.type == "cuda" else None
    kinds = labels.kinds(before)
    if known_update is not None and not repeats:
        known_update.fill(changes[OPTIMIZER], kinds)
    elif known_update is not None:
        changes[OPTIMIZER], known = known_update.repeated()
        kinds |= known
    return StepRecord(before, changes, kinds, allocator)


class KnownUpdate:
    """What an update of the weights takes and gives back, which is the same whatever the batch.

    The first step that is measured with it runs its update and fills it in; those that follow take it from here. On
    fake tensors alone: an update that is left out changes no weight.
    """

    def __init__(self) -> None:
        self._changes: list[tuple[str, int]] | None = None

    @property
    def is_filled(self) -> bool:
        return self._changes is not None

    def fill(self, changes: Sequence[Change], kinds: Mapping[int, str]) -> None:
        self._changes = [(kinds.get(change.storage, TRANSIENTS), change.difference) for change in changes]

    def repeated(self) -> tuple[list[Change], dict[int, str]]:
        """The changes once more, and what their storages are for: one of each kind, numbered below 0."""
        assert self._changes is not None, "a step was measured"
        numbers = {kind: -number for number, kind in enumerate(KINDS, 1)}
        return [Change(numbers[kind], size) for kind, size in self._changes], {n: kind for kind, n in numbers.items()}


@dataclass(frozen=True)
class _Step:
    """One training step in its three phases."""

    modules: Sequence[nn.Module]
    forward: Callable[[], Tensor]
    update: Callable[[], object]
    progress: Callable[[str], object]

    def phases(self) -> Iterator[str]:
        """Yields each phase when it has run."""
        self.drop_gradients()
        self.progress(FORWARD)
        loss = self.forward()
        yield FORWARD
        self.progress(BACKWARD)
        loss.backward()
        del loss
        yield BACKWARD
        self.progress(OPTIMIZER)
        self.update()
        yield OPTIMIZER

    def drop_gradients(self) -> None:
        for module in self.modules:
            module.zero_grad(set_to_none=True)


@dataclass
class _Labels:
    """What every storage of the step turns out to be for."""

    ledger: MemoryLedger
    modules: Sequence[nn.Module]
    given: Mapping[str, Sequence[Tensor]]
    optimizer: torch.optim.Optimizer | None
    _kinds: dict[int, str] = field(default_factory=dict)
    _stored: set[int] = field(default_factory=set)

    def note(self) -> None:
        """Label what is there now and says itself what it is for."""
        parameters = [parameter for module in self.modules for parameter in module.parameters()]
        self._label(WEIGHTS, parameters)
        self._label(BUFFERS, [buffer for module in self.modules for buffer in module.buffers()])
        for kind, tensors in self.given.items():
            self._label(kind, tensors)
        self._label(OPTIMIZER_STATE, _tensors_of_optimizer(self.optimizer))
        self._label(GRADIENTS, [parameter.grad for parameter in parameters if parameter.grad is not None])

    def note_end_of(self, phase: str) -> None:
        if phase == FORWARD:
            self._stored = set(self.ledger.live())
        self.note()

    def kinds(self, before: Mapping[int, int]) -> dict[int, str]:
        """Number of a storage -> kind; what is missing is transient.

        Args:
            before: storages that were there when the step began.
        """
        others = dict.fromkeys(before, OTHER)
        return dict.fromkeys(self._stored, ACTIVATIONS) | others | self._kinds

    def _label(self, kind: str, tensors: Iterable[Tensor]) -> None:
        for number in self.ledger.count(tensors):
            self._kinds.setdefault(number, kind)


def _tensors_of_optimizer(optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
    """All that an optimizer holds, but for what it optimizes."""
    if optimizer is None:
        return []
    held = {name: value for name, value in vars(optimizer).items() if name != "param_groups"}
    return list(_tensors_in(held, set()))


def _tensors_in(value: Any, seen: set[int]) -> Iterator[Tensor]:
    """Tensors in nested mappings, sequences and dataclasses."""
    if isinstance(value, Tensor):
        yield value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, item.name) for item in fields(value)]
    for part in parts:
        yield from _tensors_in(part, seen)


def _allocator_peak(device: torch.device) -> AllocatorPeak:
    torch.cuda.synchronize(device)
    return AllocatorPeak(torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device))
