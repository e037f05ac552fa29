"""memory=planned: for every block what is kept, so that a step takes least time or least memory."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from svtoolkit.device import PRECISIONS, choose_device, is_out_of_memory
from svtoolkit.errors import UserError
from svtoolkit.memory.planner.choice import BATCH, Chosen, choose_plans
from svtoolkit.memory.planner.costs import Around
from svtoolkit.memory.planner.stopwatch import Stopwatch
from svtoolkit.memory.planner.surroundings import Crops, chains_of
from svtoolkit.memory.strategies.checkpoint import has_blocks
from svtoolkit.memory.strategies.recompute_norm import recompute_norm
from svtoolkit.memory.strategies.store import store
from svtoolkit.reversible import Sharing, share_values
from svtoolkit.reversible.plans import Plan

log = logging.getLogger(__name__)

COUNTED, MEASURED = "counted", "measured"
TIMES = 1.35
"""Of the time of stored activations that a step may take where nothing else is asked for."""


@dataclass(frozen=True)
class Planned:
    """The planner of the chains of one run, which nothing but these share."""

    run: int
    plan: Plan
    keeps_norms: ClassVar[bool] = True

    def __call__(self, count: int) -> Plan:
        return self.plan


def planned(
    network: nn.Module,
    *,
    gib_per_utterance: float | None,
    times: float | None,
    inexact: bool,
    offload: bool,
    frames: int | None,
    num_bins: int | None,
    precision: str | None,
    clock: str,
    seconds: Sequence[float] | None,
) -> None:
    """Put a network under the plan that is best for crops of this form; reversible blocks are members of it.

    Args:
        gib_per_utterance: the fastest plan in so much memory.
        times: the leanest plan in so many times the time of stored activations.
        inexact: whether inputs of blocks may be kept in 8 bits a value.
        offload: whether they may wait in host memory.
        frames, num_bins, precision: of the crops.
        clock: whose seconds count: those of rates that are the same everywhere ("counted"), or of the blocks on the
            device at hand ("measured").
        seconds: that were measured before; None: they are measured now.

    Raises:
        UserError: no blocks, a number out of range, or less memory than any plan takes.
    """
    chosen = plan_of(
        network, gib_per_utterance=gib_per_utterance, times=times, inexact=inexact, offload=offload, frames=frames,
        num_bins=num_bins, precision=precision, clock=clock, seconds=seconds,
    )  # fmt: skip
    put_under(network, chosen.names, chosen.outlay.plans, chosen.outlay.around, chosen.sharing)
    log.debug(
        "memory=planned: %.4f GiB an utterance in %.2f times the time of stored activations, by what is %s",
        chosen.gib_per_utterance, chosen.times, clock,
    )  # fmt: skip


def put_under(
    network: nn.Module,
    names: Sequence[Sequence[str]],
    plans: Sequence[Plan],
    around: Around | None = None,
    sharing: Sharing | None = None,
) -> None:
    """Give the chains of each run, by their names, their plan, the network its way with shared values, or what is done
    around all of them."""
    if around is not None:
        recompute_norm(network, expansions=around == "expand")
        return
    store(network)
    share_values(network, sharing)
    chains = chains_of(network)
    for number, (of_run, plan) in enumerate(zip(names, plans, strict=True)):
        planner = Planned(number, plan)
        for name in of_run:
            chains[name].planner = planner


def plan_of(
    network: nn.Module,
    *,
    gib_per_utterance: float | None,
    times: float | None,
    inexact: bool,
    offload: bool,
    frames: int | None,
    num_bins: int | None,
    precision: str | None,
    clock: str = COUNTED,
    seconds: Sequence[float] | None = None,
    device: torch.device | None = None,
) -> Chosen:
    """The plan; the network stays as it is. As ``planned``.

    Args:
        device: that is timed; None: a GPU where there is one, else the CPU.
    """
    if clock not in (COUNTED, MEASURED):
        raise UserError(f"memory.clock is {clock!r}, expected {COUNTED} or {MEASURED}")
    if seconds is not None and clock == COUNTED:
        raise UserError("memory.seconds are those of memory.clock=measured, and memory.clock is counted; set that, too")
    if gib_per_utterance is not None and times is not None:
        raise UserError(
            f"memory.gib_per_utterance={gib_per_utterance} asks for the fastest plan in so much memory, and "
            f"memory.times={times} for the leanest in so much time; give one of them"
        )
    if gib_per_utterance is not None and not 0 < gib_per_utterance < math.inf:
        raise UserError(f"memory.gib_per_utterance is {gib_per_utterance!r}, expected a number of GiB above 0")
    if times is not None and not 1 <= times < math.inf:
        raise UserError(f"memory.times is {times!r}, expected a number from 1 on, which is memory=store")
    for key, value in (("frames", frames), ("num_bins", num_bins)):
        if value is None:
            raise UserError(
                f"memory=planned needs the form of the crops, and memory.{key} is null; "
                "in Python give frames and num_bins to apply_strategy"
            )
        if type(value) is not int or value < 1:
            raise UserError(f"memory.{key} is {value!r}, expected a whole number from 1 on")
    if precision is not None and precision not in PRECISIONS:
        raise UserError(f"memory.precision is {precision!r}, expected one of {', '.join(PRECISIONS)}")
    if not has_blocks(network):
        raise UserError(
            f"memory=planned needs a network that lists its blocks, and a {type(network).__name__} lists none; "
            "choose memory=store or memory=recompute_norm"
        )
    assert frames is not None
    assert num_bins is not None
    crops = Crops(1, frames, num_bins, PRECISIONS[precision or "fp32"])
    stopwatch = None
    if clock == MEASURED:
        stopwatch = Stopwatch(device or choose_device("auto"), BATCH, crops.precision, seconds)
    try:
        return choose_plans(
            network, crops, gib_per_utterance=gib_per_utterance, times=times or TIMES, inexact=inexact,
            offload=offload, stopwatch=stopwatch,
        )  # fmt: skip
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise UserError(
            f"memory=planned runs the network on crops of memory.frames={frames} and memory.num_bins={num_bins}, and "
            f"that fails: {error}; give frames and bins that it takes"
        ) from error
