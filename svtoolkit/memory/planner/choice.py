"""The plan of a network that is asked for: the fastest in so much memory, or that of least memory in so much time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory.planner.block_costs import identity
from svtoolkit.memory.planner.costs import Costs, Outlay, outlay_of
from svtoolkit.memory.planner.search import PlanTable
from svtoolkit.memory.planner.surroundings import Crops, measure_network
from svtoolkit.reversible.plans import Leaf

GIB = 2**30

BATCH = 1024
"""Crops of the step that is planned: so many that what does not grow with them weighs nothing."""

SLOTS = 500
MOST_CELLS = 4_000_000
"""Slots of a table times stretches of blocks: of longer chains memory is divided less finely."""

ROUNDING = 1.3
"""Largest peak of a table in times of what is asked for, since rounded plans take less than they are said to."""


@dataclass(frozen=True)
class Chosen:
    """A plan, and what it was chosen from.

    Attributes:
        outlay: of a step on ``BATCH`` crops.
        stored: the same with stored activations.
        names: of the chains of each run.
    """

    outlay: Outlay
    stored: Outlay
    names: list[list[str]]

    @property
    def gib_per_utterance(self) -> float:
        """Bytes at the peak for one more crop, in GiB."""
        return self.outlay.peak / BATCH / GIB

    @property
    def times(self) -> float:
        """Seconds of a step, in those with stored activations."""
        return self.outlay.seconds / self.stored.seconds


def stored_plans(costs: Costs) -> Outlay:
    """Of stored activations."""
    return outlay_of(costs, tuple(tuple(Leaf(n) for n in range(len(run.blocks))) for run in costs.runs))


def fastest(costs: Costs, memory: int, *, can_stash: bool = False) -> Outlay | None:
    """The fastest plan whose peak is at most ``memory`` bytes; None: there is none."""
    stored = stored_plans(costs)
    if stored.peak <= memory:
        return stored
    table = PlanTable(costs, round(memory * ROUNDING), _slots(costs), can_stash=can_stash)
    found = None
    low, high = 0, len(table.times) - 1  # of two numbers of slots, the plan of the greater is no slower
    while low <= high:
        middle = (low + high) // 2
        outlay = outlay_of(costs, table.plans(middle)) if np.isfinite(table.times[middle]) else None
        if outlay is None or outlay.peak <= memory:
            found = outlay if outlay is not None else found
            low = middle + 1
        else:
            high = middle - 1
    return found


def leanest(costs: Costs, seconds: float, *, can_stash: bool = False) -> Outlay:
    """The plan of least peak that takes at most so many seconds, which stored activations do."""
    best = stored_plans(costs)
    memory, slots = best.peak, _slots(costs)
    for _ in range(3):
        table = PlanTable(costs, memory, slots, can_stash=can_stash)
        enough = np.flatnonzero(np.isfinite(table.times) & (table.times <= seconds * (1 + 1e-9)))
        if not len(enough):
            break
        number = int(enough[0])
        best = min(best, outlay_of(costs, table.plans(number)), key=lambda outlay: outlay.peak)
        smaller = (number + 1) * table.slot
        if smaller > 0.9 * memory:
            break
        memory = smaller
    return best


def least_peak(costs: Costs, *, can_stash: bool = False) -> int:
    """Bytes, of the plan that takes least whatever its time."""
    return leanest(costs, np.inf, can_stash=can_stash).peak


def _slots(costs: Costs) -> int:
    stretches = max(len(run.blocks) ** 2 for run in costs.runs)
    return max(100, min(SLOTS, MOST_CELLS // stretches))


_KNOWN: OrderedDict[Any, Chosen] = OrderedDict()


def choose_plans(
    network: nn.Module, crops: Crops, *, gib_per_utterance: float | None, times: float, inexact: bool
) -> Chosen:
    """Plans of a network that lists its blocks, by rates that are the same everywhere: so the plan is, too.

    Args:
        crops: whose batch does not matter.
        gib_per_utterance: of which the fastest plan is chosen; None: the leanest in ``times``.
        times: of the time of stored activations.
        inexact: whether what is kept may be rounded to 8 bits.

    Raises:
        UserError: no plan takes so little memory.
    """
    crops = Crops(BATCH, crops.frames, crops.num_bins, crops.precision)
    key = (tuple(identity(network)), crops, gib_per_utterance, times, inexact)
    if key not in _KNOWN:
        _KNOWN[key] = _choose(network, crops, gib_per_utterance, times, inexact)
        while len(_KNOWN) > 8:
            _KNOWN.popitem(last=False)
    return _KNOWN[key]


def _choose(network: nn.Module, crops: Crops, gib_per_utterance: float | None, times: float, inexact: bool) -> Chosen:
    costs, names = measure_network(network, crops, stashes=inexact)
    stored = stored_plans(costs)
    if gib_per_utterance is None:
        return Chosen(leanest(costs, times * stored.seconds, can_stash=inexact), stored, names)
    outlay = fastest(costs, int(gib_per_utterance * GIB * crops.batch), can_stash=inexact)
    if outlay is None:
        least = least_peak(costs, can_stash=inexact) / crops.batch / GIB
        raise UserError(
            f"memory.gib_per_utterance is {gib_per_utterance:g}, and no plan of this network for {crops.frames} frames "
            f"takes less than {least:.5f} GiB an utterance; set memory.gib_per_utterance={least * 1.02:.5f} or more, "
            "or train on shorter crops"
        )
    return Chosen(outlay, stored, names)
