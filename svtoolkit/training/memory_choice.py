"""The memory strategy of a run: as configured, as the run that is resumed had it, or what fits the GPU best."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, replace
from typing import Any

import torch

from svtoolkit.config import MemoryStrategyConfig, PlannedConfig, TrainConfig
from svtoolkit.distributed.world import CPU, World
from svtoolkit.errors import UserError
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.registry import AUTO, STRATEGIES
from svtoolkit.memory.strategies.planned import MEASURED, plan_of
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.planning.assembly import build_network, for_crops
from svtoolkit.planning.automatic import ExpectedPeak, choose_way, expect_peak
from svtoolkit.planning.cards import GIB, Card, card_at_hand
from svtoolkit.training.run_state import UnfitStateError

log = logging.getLogger(__name__)


def card_of(device: torch.device) -> Card | None:
    """The GPU that a run is on; None on the CPU, which has no limit to fit into."""
    if device.type != "cuda":
        return None
    about = torch.cuda.get_device_properties(device)
    return card_at_hand(about.name, about.total_memory, (about.major, about.minor))


def choose_memory(
    config: TrainConfig,
    share: int,
    num_classes: int,
    card: Card | None,
    world: World,
    state: dict[str, Any] | None,
    micro_batch: int | None,
    device: torch.device = CPU,
) -> tuple[MemoryStrategyConfig, int | None]:
    """Strategy of a run, and the micro-batch where that was chosen with it.

    With memory=auto a resumed run keeps what it began with, on whatever card; a new one on a GPU takes the quickest
    exact strategy that is predicted to fit; on the CPU auto stays, which is reversible where the network is. Times that
    a plan was made by are kept in the same way: with memory.clock=measured the first process takes them.

    Args:
        state: that the run resumes from; None: it begins.
        micro_batch: as configured; None: free.
        device: of the run.

    Raises:
        UnfitStateError: the state has a strategy that there is none of.
    """
    if isinstance(config.memory, PlannedConfig) and config.memory.clock == MEASURED:
        return _with_seconds(config, config.memory, world, state, device), None
    if config.memory.strategy != AUTO:
        return config.memory, None
    if state is not None:
        return _of_state(state, config.memory), None
    if card is None:
        return config.memory, None
    # The first process chooses: other cards may differ in a little, and their choice must not.
    ways = [choose_way(config, card, share, num_classes, world.size, micro_batch)] if world.is_first else []
    (way,) = world.all_gather(ways)
    if way is None:
        log.info("memory=auto: what a step of this run needs cannot be predicted")
        return config.memory, None
    log.info(
        "memory=auto: %s, %d crops at once: %.1f of %.1f GiB predicted, %.2f x the time of stored activations",
        words_of(way.memory), way.micro_batch, way.peak_bytes / GIB, card.gib, way.relative,
    )  # fmt: skip
    if way.peak_bytes > card.memory_bytes:
        log.warning("no strategy is predicted to fit this GPU; this one needs least")
    return way.memory, way.micro_batch


def _with_seconds(
    config: TrainConfig, memory: PlannedConfig, world: World, state: dict[str, Any] | None, device: torch.device
) -> PlannedConfig:
    """With the seconds of blocks that the run began with, or that are measured now."""
    before = _of_state(state, memory) if state is not None else memory
    if isinstance(before, PlannedConfig) and replace(before, seconds=memory.seconds) == memory:
        memory = before
    if memory.seconds is not None:
        return memory
    found = [_measured_seconds(config, memory, device)] if world.is_first else []
    (seconds,) = world.all_gather(found)
    return replace(memory, seconds=seconds)


def _measured_seconds(config: TrainConfig, memory: PlannedConfig, device: torch.device) -> list[float]:
    num_bins = config.features.num_bins
    _, frames = front_end_of(config.features).crop_size(config.data.crop_frames)
    asked = asdict(for_crops(memory, frames, num_bins, config.trainer.precision))
    own = {key: value for key, value in asked.items() if key not in asdict(MemoryStrategyConfig())}
    with QuickFakeTensorMode():
        network = build_network(config.model, num_bins)
    log.info("memory.clock=measured: measuring the times of blocks on %s", device)
    seconds = plan_of(network, **own, device=device).seconds
    assert seconds is not None
    return list(seconds)


def words_of(memory: MemoryStrategyConfig) -> str:
    """A strategy as the words that choose it."""
    begun = asdict((STRATEGIES[memory.strategy].settings or MemoryStrategyConfig)(memory.strategy))
    changed = [f"memory.{key}={value}" for key, value in asdict(memory).items() if value != begun[key]]
    return " ".join([f"memory={memory.strategy}", *changed]).replace("True", "true").replace("False", "false")


def text_of(memory: MemoryStrategyConfig) -> str:
    """A strategy as a state keeps it."""
    return json.dumps(asdict(memory))


def expected_peak(
    config: TrainConfig, card: Card | None, share: int, num_classes: int, world: World, micro_batch: int
) -> ExpectedPeak | None:
    """What a step on a GPU is predicted to need; None on the CPU, on other processes than the first, or if unknown."""
    if card is None or not world.is_first:
        return None
    return expect_peak(config, card, share, num_classes, world.size, micro_batch)


def _of_state(state: dict[str, Any], configured: MemoryStrategyConfig) -> MemoryStrategyConfig:
    """What a run began with; states of older versions do not say, and their runs had what auto is on the CPU."""
    text = state["facts"].get("memory")
    if text is None:
        return configured
    try:
        found = json.loads(text)
        if found["strategy"] == AUTO:
            return configured
        settings = STRATEGIES[found["strategy"]].settings or MemoryStrategyConfig
        memory: MemoryStrategyConfig = settings(**found)
    except (TypeError, ValueError, KeyError, UserError) as error:
        raise UnfitStateError(
            f"the saved state does not fit this run: its memory strategy is {text!r:.80}; use another exp_dir"
        ) from error
    return replace(memory, exact=configured.exact, exact_bits=configured.exact_bits)
