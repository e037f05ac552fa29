"""How a network can be trained on a card: strategy, precision and optimizer; micro-batch, peak and time of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from svtoolkit.config import MemoryPredictionConfig, MemoryStrategyConfig, OptimConfig
from svtoolkit.planning.cards import CARDS, Card
from svtoolkit.planning.micro_batch import divisors
from svtoolkit.planning.profiles import Profiles, profile_or_recall, strategies_tried
from svtoolkit.planning.step_profile import StepProfile
from svtoolkit.planning.update_profile import UpdateProfile

STORE = MemoryStrategyConfig("store")


@dataclass(frozen=True)
class Way:
    """One way to train.

    Attributes:
        micro_batch: crops at once on a device: the most that divide its share of the effective batch and fit.
        peak: bytes at the peak by what they are for; they add up to ``peak_bytes``.
        seconds: of a step on the effective batch.
        relative: of the time with stored activations in float32 and all crops at once, whatever fits.
    """

    memory: MemoryStrategyConfig
    precision: str
    optim: OptimConfig
    micro_batch: int
    peak: dict[str, float]
    seconds: float
    relative: float

    @property
    def peak_bytes(self) -> float:
        return sum(self.peak.values())


@dataclass(frozen=True)
class Plan:
    """All ways that fit, the quickest first, and where none does the one that needs least.

    Attributes:
        least: way of the smallest peak, whether it fits or not.
        tried: ways, those that do not fit among them.
    """

    card: Card
    ways: list[Way]
    least: Way
    tried: int

    @property
    def card_that_holds(self) -> Card | None:
        """The smallest card of the table that the least fits on; None: there is none."""
        larger = (card for card in CARDS.values() if card.memory_bytes > self.card.memory_bytes)
        return next((card for card in larger if self.least.peak_bytes <= card.memory_bytes), None)


def plan_training(
    question: MemoryPredictionConfig,
    card: Card,
    share: int,
    *,
    optims: Sequence[OptimConfig],
    precisions: Sequence[str] = (),
    memories: Sequence[MemoryStrategyConfig] = (),
    micro_batch: int | None = None,
    tuples_of: int = 1,
    progress: Callable[[int], object] = lambda done: None,
) -> Plan:
    """Find the ways to train a network on a card.

    Args:
        question: network, head, frames, bins and devices.
        share: crops of an effective batch on one device.
        precisions, memories: that are tried; default: those of the card, and all strategies that can be predicted.
        micro_batch: crops at once; None: the most that fit.
        tuples_of: crops that have to be at once in memory with others of their class; see ``divisors``.
        progress: called with how many profiles are new.

    Raises:
        UserError: as ``profile_or_recall``.
    """
    precisions, memories = precisions or card.precisions, memories or strategies_tried()
    asked = memories if STORE in memories else [STORE, *memories]
    profiles = profile_or_recall(question, asked, list(dict.fromkeys(["fp32", *precisions])), optims, progress)
    stored = profiles.step(STORE, "fp32")
    assert stored is not None, "any network can store its activations"
    reference = card.seconds(stored.counted, share) + card.seconds(profiles.update(optims[0]).counted, 1)
    sizes = [micro_batch] if micro_batch else divisors(share, tuples_of)
    ways = [
        way
        for candidate in _combinations(profiles, memories, precisions, optims)
        for way in _of_sizes(candidate, card, share, sizes, reference)
    ]
    fitting = [way for way in ways if way.peak_bytes <= card.memory_bytes]
    return Plan(
        card,
        sorted(fitting, key=lambda way: (round(way.relative, 2), way.peak_bytes)),
        min(ways, key=lambda way: way.peak_bytes),
        len(ways),
    )


@dataclass(frozen=True)
class _Candidate:
    memory: MemoryStrategyConfig
    precision: str
    optim: OptimConfig
    step: StepProfile
    update: UpdateProfile


def _combinations(
    profiles: Profiles,
    memories: Sequence[MemoryStrategyConfig],
    precisions: Sequence[str],
    optims: Sequence[OptimConfig],
) -> Iterator[_Candidate]:
    for memory in memories:
        for precision in precisions:
            step = profiles.step(memory, precision)
            if step is not None:
                for optim in optims:
                    yield _Candidate(memory, precision, optim, step, profiles.update(optim))


def _of_sizes(candidate: _Candidate, card: Card, share: int, sizes: Sequence[int], reference: float) -> Iterator[Way]:
    """The way with the largest micro-batch that fits; where none does, that of the smallest."""
    sizes = [size for size in sizes if size >= candidate.step.fewest] or [candidate.step.fewest]
    for size in sizes:
        peak = peak_of(candidate.step, candidate.update, card, size, accumulates=size < share)
        if sum(peak.values()) <= card.memory_bytes or size == sizes[-1]:
            seconds = share / size * card.seconds(candidate.step.counted, size)
            seconds += card.seconds(candidate.update.counted, 1)
            yield Way(candidate.memory, candidate.precision, candidate.optim, size, peak, seconds, seconds / reference)
            return


def peak_of(step: StepProfile, update: UpdateProfile, card: Card, crops: int, *, accumulates: bool) -> dict[str, float]:
    """Bytes at the peak of a step by what they are for, those that are no tensors among them."""
    level = step.highest(crops, accumulates=accumulates)
    gradients = step.gradients if accumulates else level.gradients
    inside = {
        "weights": step.weights,
        "gradients": gradients,
        "optimizer state": update.state,
        "activations": level.activations * crops,
        "transients": level.bytes(crops) - gradients - level.activations * crops,
    }
    outside = {
        "weights": step.weights,
        "gradients": step.gradients,
        "optimizer state": update.state,
        "activations": 0.0,
        "transients": update.transients,
    }
    tensors: dict[str, float] = max(inside, outside, key=lambda peak: sum(peak.values()))
    return tensors | card.taken(sum(tensors.values()), step.largest_convolution * crops)
