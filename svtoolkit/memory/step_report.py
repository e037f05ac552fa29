"""What a training step needs, by kind and over time: changes of storage and what each storage was for, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from svtoolkit.memory.ledger import Change

WEIGHTS, BUFFERS, GRADIENTS, OPTIMIZER_STATE = "weights", "buffers", "gradients", "optimizer_state"
BUCKETS, AVERAGES = "buckets", "averages"
INPUT, ACTIVATIONS, TRANSIENTS, OTHER = "input", "activations", "transients", "other"
KINDS = (WEIGHTS, BUFFERS, GRADIENTS, BUCKETS, OPTIMIZER_STATE, AVERAGES, INPUT, ACTIVATIONS, TRANSIENTS, OTHER)
"""What storage is for. buckets: in which the gradients of several devices are added up; averages: moving averages of
weights; activations: made by the forward pass and there at its end; other: there before the step and none of the
former; transients: all that comes and goes within the step."""

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
PHASES = (FORWARD, BACKWARD, OPTIMIZER)
TIMELINE_POINTS = 100
"""Moments of a phase that a report keeps."""


@dataclass(frozen=True)
class Moment:
    """Bytes of every kind at one moment of the step, and the phase it is in."""

    phase: str
    bytes: dict[str, int]


@dataclass(frozen=True)
class AllocatorPeak:
    """What CUDA's caching allocator itself counts over the step, in bytes: handed out, and taken from the GPU."""

    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class MemoryReport:
    """Memory of one training step, in bytes.

    Attributes:
        peak_bytes: the most that is there at once.
        peak_phase: the phase of it: forward, backward or optimizer.
        at_peak: every kind of ``KINDS`` at that moment; they add up to ``peak_bytes``.
        highest: the most of every kind at any moment of the step.
        stored_bytes: activations at the end of the forward pass, kept for the backward pass.
        phase_peaks: phase -> the most that is there at once during it.
        timeline: up to ``TIMELINE_POINTS`` moments a phase in order, of each stretch the one where most is there.
        allocator: of a step on CUDA, else None.
    """

    peak_bytes: int
    peak_phase: str
    at_peak: dict[str, int]
    highest: dict[str, int]
    stored_bytes: int
    phase_peaks: dict[str, int]
    timeline: list[Moment]
    allocator: AllocatorPeak | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def report_step(
    before: Mapping[int, int],
    changes: Mapping[str, Sequence[Change]],
    kinds: Mapping[int, str],
    allocator: AllocatorPeak | None = None,
) -> MemoryReport:
    """Put a step together.

    Args:
        before: number of a storage -> bytes, of all that is there when the step begins.
        changes: phase of ``PHASES`` -> what happens in it, in order.
        kinds: number of a storage -> one of ``KINDS``; what is not among them is transient.
        allocator: handed through.
    """
    present = Counter(dict.fromkeys(KINDS, 0))
    for storage, size in before.items():
        present[kinds.get(storage, TRANSIENTS)] += size
    moments = {phase: list(_moments(phase, present, changes[phase], kinds)) for phase in PHASES}
    every = [moment for phase in PHASES for moment in moments[phase]]
    peak = max(every, key=_total)
    return MemoryReport(
        _total(peak),
        peak.phase,
        peak.bytes,
        {kind: max(moment.bytes[kind] for moment in every) for kind in KINDS},
        moments[FORWARD][-1].bytes[ACTIVATIONS],
        {phase: max(map(_total, moments[phase])) for phase in PHASES},
        [moment for phase in PHASES for moment in _highest_of_each_stretch(moments[phase])],
        allocator,
    )


def _moments(
    phase: str, present: Counter[str], changes: Sequence[Change], kinds: Mapping[int, str]
) -> Iterator[Moment]:
    """The beginning of a phase and what follows each change; ``present`` goes along."""
    yield Moment(phase, dict(present))
    for change in changes:
        present[kinds.get(change.storage, TRANSIENTS)] += change.difference
        yield Moment(phase, dict(present))


def _highest_of_each_stretch(moments: Sequence[Moment]) -> list[Moment]:
    """One moment of each of (nearly) equal parts."""
    count = min(TIMELINE_POINTS, len(moments))
    bounds = [len(moments) * point // count for point in range(count + 1)]
    return [max(moments[start:stop], key=_total) for start, stop in pairwise(bounds)]


def _total(moment: Moment) -> int:
    return sum(moment.bytes.values())
