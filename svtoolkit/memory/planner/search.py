"""The fastest plan of a network for every amount of memory, by dynamic programming.

A plan of blocks i to j begins with a part: a block in one of its ways, or a segment of several, of which the input is
kept and which is planned in the same way for the memory that is left when its gradient is computed. What remains is a
plan of the blocks after it for the memory that the part leaves. So the best plan of (i, j) in m bytes follows from
those of shorter stretches. That is the scheme of Beaumont, Eyraud-Dubois, Herrmann, Joly & Shilova (Optimal
checkpointing for heterogeneous chains, Inria RR-9302, 2019) for persistent plans, in which what is kept stays until its
gradient is computed, with more than one way for each block; cf. Feng & Huang (Optimal gradient checkpoint search for
arbitrary computation graphs, CVPR 2021). Who holds which gradient meanwhile is as ``svtoolkit.reversible`` runs it.
Memory is counted in slots, and every size is rounded up: no plan takes more than it is said to.
"""

from __future__ import annotations

import numpy as np

from svtoolkit.memory.planner.costs import Costs
from svtoolkit.memory.planner.reading import read_plan
from svtoolkit.memory.planner.slots import Times
from svtoolkit.memory.planner.stretches import RunTable
from svtoolkit.reversible.plans import Plan


class PlanTable:
    """The fastest plans of a network.

    Args:
        costs: of the network.
        memory: bytes of the largest peak that is asked for.
        slots: that these are divided into.

    Attributes:
        slot: bytes.
        times: seconds of a step for a peak of 0, 1, 2, ... slots; infinite where there is no plan.
    """

    def __init__(self, costs: Costs, memory: int, slots: int = 500) -> None:
        self.slot = max(1, -(-memory // slots))
        following: Times = np.zeros(slots + 1)
        self._runs: list[RunTable] = []
        gradients = 0
        for run in reversed(costs.runs):
            table = RunTable(run, self.slot, gradients, following)
            self._runs.insert(0, table)
            following = table.times
            gradients += run.weight_gradients[0]
        self.times: Times = following + costs.seconds
        self.times[: -(-costs.elsewhere // self.slot)] = np.inf

    def plans(self, slots: int) -> tuple[Plan, ...]:
        """One for each run; they take ``times[slots]`` seconds, and no more than so many slots."""
        assert np.isfinite(self.times[slots]), "a number of slots for which there is a plan"
        found = []
        for table in self._runs:
            plan, slots = read_plan(table, slots)
            found.append(plan)
        return tuple(found)
