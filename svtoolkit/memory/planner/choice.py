"""The plan of a network that is asked for: the fastest in so much memory, or that of least memory in so much time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory.host_stash import HostMemory
from svtoolkit.memory.planner.block_costs import BlockCosts, identity
from svtoolkit.memory.planner.clock import CONSUMER_GPU
from svtoolkit.memory.planner.costs import Costs, Outlay, outlay_of, stored_plans
from svtoolkit.memory.planner.search import PlanTable
from svtoolkit.memory.planner.stopwatch import Stopwatch
from svtoolkit.memory.planner.surroundings import Crops, measure_network, sharings_of
from svtoolkit.reversible import Sharing

GIB = 2**30

BATCH = 1024
"""Crops of the step that is planned: so many that what does not grow with them weighs nothing."""

SLOTS = 500
MOST_CELLS = 4_000_000
"""Slots of a table times stretches of blocks: of longer chains memory is divided less finely."""

FINER = 0.4
"""Memory of the next table in the search for the leanest plan."""
EVERY = 5
"""So many slots apart are the plans of a table that are looked at."""

ROUNDING = 1.3
"""Largest peak of a table in times of what is asked for, since rounded plans take less than they are said to."""


@dataclass(frozen=True)
class Chosen:
    """A plan, and what it was chosen from.

    Attributes:
        outlay: of a step on ``BATCH`` crops.
        stored: the same with stored activations.
        names: of the chains of each run.
        sharing: of the values that several places of the network read.
        seconds: of the blocks, as ``Stopwatch`` has them; None: they were counted.
    """

    outlay: Outlay
    stored: Outlay
    names: list[list[str]]
    sharing: Sharing | None = None
    seconds: tuple[float, ...] | None = None

    @property
    def gib_per_utterance(self) -> float:
        """Bytes at the peak for one more crop, in GiB."""
        return self.outlay.peak / BATCH / GIB

    @property
    def times(self) -> float:
        """Seconds of a step, in those with stored activations."""
        return self.outlay.seconds / self.stored.seconds


def fastest(costs: Costs, memory: int) -> Outlay | None:
    """The fastest plan whose peak is at most ``memory`` bytes; None: there is none."""
    candidates = [stored_plans(costs), *(costs.wholes() if costs.least_of_wholes <= memory else ())]
    if candidates[0].peak > memory and (by_blocks := _fastest_by_blocks(costs, memory)):
        candidates.append(by_blocks)
    fitting = [outlay for outlay in candidates if outlay.peak <= memory]
    return min(fitting, key=lambda outlay: (outlay.seconds, outlay.peak), default=None)


def _fastest_by_blocks(costs: Costs, memory: int) -> Outlay | None:
    table = PlanTable(costs, round(memory * ROUNDING), _slots(costs))
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
    return least_plan(costs) if found is None else found


def leanest(costs: Costs, seconds: float) -> Outlay:
    """The plan of least peak that takes at most so many seconds, which stored activations do.

    Which plans are looked at follows from the costs alone, and with more seconds it is more of them: the peak is no
    greater then.
    """
    seconds *= 1 + 1e-9
    slots = _slots(costs)
    candidates = [stored_plans(costs)]
    for looked_at in _known((costs, slots), lambda: _Frontier(costs, slots)).tables():
        if looked_at[0][0] > seconds:
            break
        candidates += [outlay for times, outlay in looked_at if times <= seconds]
    least = min(candidates, key=lambda outlay: outlay.peak)
    if least.peak <= costs.least_of_wholes:
        return least
    return min([*(whole for whole in costs.wholes() if whole.seconds <= seconds), least], key=lambda one: one.peak)


class _Frontier:
    """Plans that are looked at for the leanest, whatever its time: those of tables of less and less memory.

    Each table is filled once, when it is first asked for.
    """

    def __init__(self, costs: Costs, slots: int) -> None:
        self.costs, self.slots = costs, slots
        self.memory = stored_plans(costs).peak
        self.found: list[list[tuple[float, Outlay]]] = []

    def tables(self) -> Iterator[list[tuple[float, Outlay]]]:
        """Plans of each, and their seconds in the table; the fastest first."""
        for number in count():
            if number == len(self.found) and not self._look_further():
                return
            yield self.found[number]

    def _look_further(self) -> bool:
        if self.memory <= self.costs.elsewhere:
            return False
        table = PlanTable(self.costs, self.memory, self.slots)
        self.memory = int(FINER * self.memory)
        numbers = range(self.slots, int(FINER * self.slots), -EVERY)  # what takes less is in the next table, and finer
        is_there = np.isfinite(table.times)
        looked_at = [(float(table.times[n]), outlay_of(self.costs, table.plans(n))) for n in numbers if is_there[n]]
        if not looked_at:
            self.memory = 0
            return False
        self.found.append(looked_at)
        return True


def least_plan(costs: Costs) -> Outlay:
    """The plan that takes least memory whatever its time."""
    return leanest(costs, np.inf)


def _slots(costs: Costs) -> int:
    stretches = max(len(run.blocks) ** 2 for run in costs.runs)
    return max(100, min(SLOTS, MOST_CELLS // stretches))


_KNOWN: OrderedDict[Any, Any] = OrderedDict()
MOST_KNOWN = 16
"""Networks and choices that are not measured or searched for again in this process."""


def choose_plans(
    network: nn.Module,
    crops: Crops,
    *,
    gib_per_utterance: float | None,
    times: float,
    inexact: bool,
    offload: bool = False,
    stopwatch: Stopwatch | None = None,
) -> Chosen:
    """Plans of a network that lists its blocks.

    Args:
        crops: whose batch does not matter.
        gib_per_utterance: of which the fastest plan is chosen; None: the leanest in ``times``.
        times: of the time of stored activations.
        inexact: whether what is kept may be rounded to 8 bits.
        offload: whether inputs of blocks may wait in host memory.
        stopwatch: that takes the time of blocks, of ``BATCH`` crops; None: it is counted by rates that are the same
            everywhere, and so is the plan.

    Raises:
        UserError: no plan takes so little memory, nothing could wait in host memory, or what the stopwatch knows is of
            other blocks.
    """
    crops = replace(crops, batch=BATCH)
    known = None if stopwatch is None or stopwatch.known is None else tuple(stopwatch.known)
    key = (tuple(identity(network)), crops, inexact, offload, stopwatch and stopwatch.device, known)
    ways = _known(key, lambda: _measured(network, crops, inexact=inexact, offload=offload, stopwatch=stopwatch))
    if offload and not any(o.travel for way in ways for run in way.costs.runs for b in run.blocks for o in b.options):
        raise UserError(
            "memory.offload=true lets inputs of blocks wait in host memory, and this network has no block whose input "
            "is kept: all are reversible; leave memory.offload out"
        )
    return _known((*key, gib_per_utterance, times), lambda: _choose(ways, crops, gib_per_utterance, times))


class _Shared(NamedTuple):
    """A network whose shared values are kept in one way."""

    sharing: Sharing | None
    seconds: tuple[float, ...] | None
    costs: Costs
    names: list[list[str]]


def _measured(
    network: nn.Module, crops: Crops, *, inexact: bool, offload: bool, stopwatch: Stopwatch | None
) -> list[_Shared]:
    """All ways; the first is to store."""
    measure = BlockCosts(CONSUMER_GPU, crops.precision, inexact, HostMemory() if offload else None, stopwatch)
    sharings = sharings_of(network, stashes=inexact)
    found = [measure_network(network, crops, measure, sharing=sharing) for sharing in sharings]
    if stopwatch is not None:
        stopwatch.check_end()
    seconds = None if stopwatch is None else tuple(stopwatch.seconds)
    return [_Shared(sharing, seconds, *each) for sharing, each in zip(sharings, found, strict=True)]


def _known(key: Any, make: Callable[[], Any]) -> Any:
    if key not in _KNOWN:
        _KNOWN[key] = make()
        while len(_KNOWN) > MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return _KNOWN[key]


def _choose(ways: list[_Shared], crops: Crops, gib_per_utterance: float | None, times: float) -> Chosen:
    stored = stored_plans(ways[0].costs)
    if gib_per_utterance is None:
        seconds = times * stored.seconds
        within = [(leanest(way.costs, seconds), way) for way in ways if stored_plans(way.costs).seconds <= seconds]
        outlay, way = min(within, key=lambda pair: pair[0].peak)
        return Chosen(outlay, stored, way.names, way.sharing, way.seconds)
    memory = int(gib_per_utterance * GIB * crops.batch)
    possible = [(found, way) for way in ways if (found := fastest(way.costs, memory)) is not None]
    if not possible:
        least = min(least_plan(way.costs).peak for way in ways) / crops.batch / GIB
        raise UserError(
            f"memory.gib_per_utterance is {gib_per_utterance:g}, and no plan of this network for {crops.frames} frames "
            f"takes less than {least:.3g} GiB an utterance; set memory.gib_per_utterance={least * 1.01:.3g} or more, "
            "or train on shorter crops"
        )
    outlay, way = min(possible, key=lambda pair: pair[0].seconds)
    return Chosen(outlay, stored, way.names, way.sharing, way.seconds)
