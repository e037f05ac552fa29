"""Steps of ``benchmarks.extremes``: one network, one way to train it, any micro-batch, any card."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from benchmarks.published import TOTAL_BATCH
from benchmarks.training_step import BINS, CLASSES, FRAMES, OPTIMIZERS
from svtoolkit.config import CheckpointConfig, MemoryPredictionConfig, MemoryStrategyConfig, ModelConfig, PlannedConfig
from svtoolkit.memory.registry import STRATEGIES
from svtoolkit.planning.cards import Card
from svtoolkit.planning.profiler import profiler_of
from svtoolkit.planning.step_profile import StepProfile
from svtoolkit.planning.update_profile import UpdateProfile

SMALLEST_MICRO_BATCH = 8
WATERFALL_BATCH = 64


@dataclass(frozen=True, eq=False)
class Way:
    """How a step is made: memory strategy, precision, optimizer."""

    memory: MemoryStrategyConfig
    precision: str
    optimizer: str

    @property
    def title(self) -> str:
        memory = self.memory.strategy
        if isinstance(self.memory, CheckpointConfig) and self.memory.segments != "blocks":
            memory += f", {self.memory.segments}"
        if isinstance(self.memory, PlannedConfig) and self.memory.times is not None:
            memory += f" at {self.memory.times} times"
        return f"{memory}, {'16 bits' if self.precision != 'fp32' else 'fp32'}, {self.optimizer}"


def way(strategy: str, precision: str, optimizer: str, **settings: Any) -> Way:
    """With the settings that a strategy begins with but for these; one that is made for crops is told theirs."""
    own = STRATEGIES[strategy].settings or MemoryStrategyConfig
    crops = {"frames": FRAMES, "num_bins": BINS, "precision": precision}
    known = {field.name for field in fields(own)}
    settings |= {key: value for key, value in crops.items() if key in known}
    return Way(own(strategy, **settings), precision, optimizer)


@dataclass(frozen=True)
class Step:
    """A network's step one way, of any batch."""

    step: StepProfile
    update: UpdateProfile
    parameters: int
    layers: int | None

    def peaks(self, micro_batch: int) -> tuple[float, float]:
        """Bytes of tensors at the peak of the passes and at that of the update, of an effective batch of
        ``TOTAL_BATCH``, or of the micro-batch where that is more.
        """
        passes = self.step.peak_bytes(micro_batch, accumulates=micro_batch < TOTAL_BATCH)
        update = self.step.weights + self.step.gradients + self.update.transients
        return self.update.state + passes, self.update.state + update

    def needed(self, micro_batch: int, card: Card) -> float:
        """Bytes of the card that a process takes."""
        return max(self.needed_at_peaks(micro_batch, card))

    def needed_at_peaks(self, micro_batch: int, card: Card) -> tuple[float, float]:
        """Of the passes, and of the update."""
        workspace = self.step.largest_convolution * micro_batch
        passes, update = (peak + sum(card.taken(peak, workspace).values()) for peak in self.peaks(micro_batch))
        return passes, update

    def micro_batch(self, card: Card) -> int:
        """The largest power of two up to the effective batch that fits; 0: not even one crop."""
        size = TOTAL_BATCH
        while size and self.needed(size, card) > card.memory_bytes:
            size //= 2
        return size

    def seconds(self, micro_batch: int, card: Card) -> float:
        """Of ``TOTAL_BATCH`` crops and their update, by the roofline."""
        times = TOTAL_BATCH / micro_batch
        return times * card.seconds(self.step.counted, micro_batch) + card.seconds(self.update.counted, 1)


def profile(network: str, ways: Sequence[Way]) -> dict[Way, Step]:
    """Steps of one network, which is built once."""
    question = MemoryPredictionConfig(
        frames=FRAMES, num_bins=BINS, num_classes=CLASSES, device="cpu", model=ModelConfig(network),
        optim=OPTIMIZERS["sgd"](),
    )  # fmt: skip
    found, steps, updates = {}, {}, {}
    with profiler_of(question) as profiler:
        count = sum(weight.numel() for weight in profiler.network.parameters())
        layers = getattr(profiler.network, "layers", None)
        for each in ways:
            key = (json.dumps(asdict(each.memory)), each.precision)
            if key not in steps:
                steps[key] = profiler.profile_step(each.memory, each.precision)
            if each.optimizer not in updates:
                updates[each.optimizer] = profiler.profile_update(OPTIMIZERS[each.optimizer]())
            found[each] = Step(steps[key], updates[each.optimizer], count, layers)
    print(network, file=sys.stderr)
    return found
