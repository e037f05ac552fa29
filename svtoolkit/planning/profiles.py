"""Profiles of a network under every strategy that suits it, recalled where they were made before."""

from __future__ import annotations

import gc
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, chain
from typing import Any

import torch

from svtoolkit.config import (
    CheckpointConfig,
    MemoryPredictionConfig,
    MemoryStrategyConfig,
    OptimConfig,
    PlannedConfig,
    RecomputeNormConfig,
    SGDConfig,
)
from svtoolkit.errors import UserError
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.registry import STRATEGIES
from svtoolkit.planning.profiler import Profiler, profiler_of
from svtoolkit.planning.step_profile import StepProfile
from svtoolkit.planning.stored_predictions import path_of, recall, remember
from svtoolkit.planning.update_profile import UpdateProfile
from svtoolkit.system.processes import count_cores, worker_processes

NOT_PLANNED = {"offload"}
"""Whose time and memory are those of a bus and of the host, which no profile knows."""

VARIANTS: dict[str, list[MemoryStrategyConfig]] = {
    "checkpoint": [CheckpointConfig("checkpoint", segments=segments) for segments in ("blocks", "sqrt", "recursive")],
    "recompute_norm": [RecomputeNormConfig("recompute_norm", expansions=expansions) for expansions in (False, True)],
    "planned": [PlannedConfig("planned", times=times) for times in (1.2, 1.35, 1.7)],
}
"""Strategy -> its settings that are tried; of others those it begins with."""

FEW = 2
"""Profiles that are not worth a process each."""

PLANNED_WORK, HALF_WORK = 3.0, 1.2
"""Time of the profile of a plan, and of one in 16 bits, relative to others."""


@dataclass
class Profiles:
    """What was found of a network.

    Attributes:
        steps: (strategy as JSON, fp32 or 16 bits) -> profile; None: the network cannot be under it.
        updates: optimizer as JSON -> profile.
    """

    steps: dict[tuple[str, str], StepProfile | None] = field(default_factory=dict)
    updates: dict[str, UpdateProfile] = field(default_factory=dict)

    def step(self, memory: MemoryStrategyConfig, precision: str) -> StepProfile | None:
        """Of a strategy in a precision."""
        return self.steps[_key(memory), bits_of(precision)]

    def update(self, optim: OptimConfig) -> UpdateProfile:
        """Of an optimizer."""
        return self.updates[_key(optim)]


def strategies_tried() -> list[MemoryStrategyConfig]:
    """Settings of every row of STRATEGIES that can be planned, the plainest first."""
    found: list[MemoryStrategyConfig] = []
    for name in sorted(STRATEGIES.rows, key=lambda name: name != "store"):
        if name not in NOT_PLANNED:
            found += VARIANTS.get(name) or [(STRATEGIES.rows[name].settings or MemoryStrategyConfig)(name)]
    return found


def bits_of(precision: str) -> str:
    """fp32 or 16 bits: both types of these take the same room and time."""
    return "fp32" if precision == "fp32" else "16 bits"


def profile_or_recall(
    question: MemoryPredictionConfig,
    memories: Sequence[MemoryStrategyConfig],
    precisions: Sequence[str],
    optims: Sequence[OptimConfig],
    progress: Callable[[int], object] = lambda done: None,
) -> Profiles:
    """Profiles of the steps of a network under strategies, in precisions, and of the updates of optimizers.

    Args:
        question: network, head, sizes and number of devices; other settings do not count.
        progress: called with how many are new.

    Raises:
        UserError: a part that cannot be built, or an optimizer that cannot be predicted.
    """
    asked = replace(question, memory=MemoryStrategyConfig(), optim=SGDConfig(), batch_size=1, precision="fp32")
    path = path_of("profiles", asked)
    known: dict[str, Any] = recall(path, dict) or {}
    wanted = {_name("step", memory, bits_of(precision)): (memory, bits_of(precision))
              for precision in precisions for memory in memories}  # fmt: skip
    updates = {_name("update", optim): optim for optim in optims}
    missing = {name: each for name, each in wanted.items() if name not in known}
    parts = [_Part(asked, part, [optim for name, optim in updates.items() if name not in known] if not number else [])
             for number, part in enumerate(_divided(missing))]  # fmt: skip
    if parts := [part for part in parts if part.steps or part.optims]:
        killed = "a process that predicts the memory of a step was killed, probably because memory ran out"
        *others, here = parts  # this process does the last itself
        forked = sys.platform == "linux" and not torch.cuda.is_available()  # it has threads that no fork keeps
        if forked and others:
            QuickFakeTensorMode()  # imports the half of torch, here for all
        with worker_processes(max(1, len(others)), killed=killed, forked=forked) as workers:
            there = {workers.submit(_profile, part): part for part in others}
            for part, found in chain(
                [(here, _profile(here))], ((there[each], _found_by(each, there[each])) for each in as_completed(there))
            ):
                known.update(found)
                progress(len(part.steps) + len(part.optims))
        remember(path, known)
    return Profiles(
        {
            (_key(memory), bits): known[name] and StepProfile.from_plain(known[name])
            for name, (memory, bits) in wanted.items()
        },
        {_key(optim): UpdateProfile.from_plain(known[name]) for name, optim in updates.items()},
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """What one process profiles."""

    question: MemoryPredictionConfig
    steps: Mapping[str, tuple[MemoryStrategyConfig, str]]
    optims: Sequence[OptimConfig]


def _divided(missing: Mapping[str, tuple[MemoryStrategyConfig, str]]) -> Iterator[dict[str, Any]]:
    """Into as many parts as there are cores, of like work; one where there are few."""
    parts = count_cores() if len(missing) > FEW else 1
    work = {name: (PLANNED_WORK if isinstance(memory, PlannedConfig) else 1.0) * (1.0 if bits == "fp32" else HALF_WORK)
            for name, (memory, bits) in missing.items()}  # fmt: skip
    ends = dict(zip(work, accumulate(work.values()), strict=True))
    for number in range(parts):  # a precision each, where there are two: what is measured for plans is shared
        low, high = (share * sum(work.values()) / parts for share in (number, number + 1))
        yield {name: missing[name] for name in missing if low < ends[name] - work[name] / 2 <= high}


def _found_by(child: Future[dict[str, Any]], part: _Part) -> dict[str, Any]:
    """What a child found; this process does it where autograd began threads before, since no fork may go on then."""
    try:
        return child.result()
    except RuntimeError as error:
        if "fork-based multiprocessing" not in str(error):
            raise
        return _profile(part)


def _profile(part: _Part) -> dict[str, Any]:
    """Profiles in plain data, by name."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.disable()  # it would look through all of torch again and again
    planner = logging.getLogger("svtoolkit.memory.strategies.planned")
    level = planner.level
    planner.setLevel(logging.WARNING)  # what it says of its plan is said of the run that takes it
    found: dict[str, Any] = {}
    try:
        with profiler_of(part.question) as profiler:
            for optim in part.optims:
                found[_name("update", optim)] = asdict(profiler.profile_update(optim))
            for name, (memory, bits) in part.steps.items():
                found[name] = _profile_step(profiler, memory, bits)
    finally:
        gc.enable()
        torch.set_num_threads(threads)
        planner.setLevel(level)
    return found


def _profile_step(profiler: Profiler, memory: MemoryStrategyConfig, bits: str) -> dict[str, Any] | None:
    """In plain data; None: the network cannot be under it."""
    try:
        return asdict(profiler.profile_step(memory, "fp32" if bits == "fp32" else "bf16"))
    except UserError:
        return None


def _key(settings: Any) -> str:
    return json.dumps(asdict(settings), sort_keys=True)


def _name(kind: str, settings: Any, *further: str) -> str:
    return " ".join([kind, _key(settings), *further])
