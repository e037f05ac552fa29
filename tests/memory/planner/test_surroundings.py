"""What is predicted of plans, against the ledger's peak of the network that is run by them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from network_material import narrow
from torch import Tensor, nn

from svtoolkit.memory import apply_strategy
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.host_stash import HostMemory
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.planner.block_costs import BlockCosts
from svtoolkit.memory.planner.choice import fastest, leanest
from svtoolkit.memory.planner.clock import CONSUMER_GPU, Clock
from svtoolkit.memory.planner.costs import Costs, Run, outlay_of, stored_plans
from svtoolkit.memory.planner.surroundings import Crops, measure_network
from svtoolkit.memory.strategies.planned import put_under
from svtoolkit.models.blocks import BasicBlock, DFBottleneck
from svtoolkit.reversible import Chain, EightBits, Sharing
from svtoolkit.reversible.parts import two_for_all
from svtoolkit.reversible.plans import Part, Plan, Segment

CROPS = Crops(16, 32, 16)
WIDTH = 8


def blocks_of_two_kinds() -> Chain:
    return Chain(*(kind(WIDTH) for kind in (DFBottleneck, DFBottleneck, basic, DFBottleneck, basic, basic)))


def basic(width: int) -> BasicBlock:
    return BasicBlock(width, width)


class Small(nn.Module):
    """Chains one after the other with a convolution before each, and a mean."""

    def __init__(self, chains: int) -> None:
        super().__init__()
        self.before = nn.ModuleList(nn.Conv2d(WIDTH if n else 1, WIDTH, 3, padding=1) for n in range(chains))
        self.chains = nn.ModuleList(blocks_of_two_kinds() for _ in range(chains))

    def forward(self, frames: Tensor) -> Tensor:
        x = frames[:, None]
        for before, chain in zip(self.before, self.chains, strict=True):
            x = chain(torch.tanh(before(x)))
        return x.mean((2, 3))


def dual() -> nn.Module:
    stages = [(1, 1, 1, 4, 1), (2, 1, 1, 4, 1)]
    return narrow("redimnet2_b4", num_bins=CROPS.num_bins, embedding_dim=16, stages=stages)


def mixed() -> nn.Module:
    stages = [(1, 1, 1, None, 1), (2, 1, 1, None, 2)]
    return narrow("redimnet2_b4", num_bins=CROPS.num_bins, embedding_dim=16, stages=stages)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], float, Sharing | None]] = {
    "one run": (lambda: Small(1), 0.02, None),
    "runs apart": (lambda: Small(2), 0.02, None),
    "inputs in host memory": (lambda: Small(1), 0.02, None),
    "maps that all are read": (dual, 0.1, None),
    "maps that are kept once": (mixed, 0.1, Sharing()),
    "maps in 8 bits": (mixed, 0.1, Sharing(EightBits())),
}
"""Structure -> network, how much more than its peak may be predicted, and what becomes of values that it shares."""

BLOCKS = BlockCosts(CONSUMER_GPU)
IN_HOST_MEMORY = BlockCosts(CONSUMER_GPU, host=HostMemory())
"""Each kind of block is measured once."""


def network_of(structure: str) -> nn.Module:
    return NETWORKS[structure][0]()


def peak_of(structure: str, names: list[list[str]], plans: tuple[Plan, ...], crops: Crops = CROPS) -> int:
    """Bytes of a step beyond weights and buffers."""
    with QuickFakeTensorMode():
        network = network_of(structure).train()
        put_under(network, names, plans, sharing=NETWORKS[structure][2])
        with MemoryLedger() as ledger:
            ledger.count([*network.parameters(), *network.buffers()])
            before = sum(ledger.live().values())
            frames = torch.empty(crops.batch, crops.frames, crops.num_bins)
            with torch.autocast("cpu", dtype=crops.precision, enabled=crops.precision is not None):
                loss = network(frames).sum()
            loss.backward()
    return max(accumulate(change.difference for change in ledger.changes)) - before


def drawn_plan(run: Run, draws: random.Random, begin: int = 0, end: int | None = None, depth: int = 0) -> Plan:
    """Some plan or other."""
    end = len(run.blocks) if end is None else end
    parts: list[Part] = []
    while begin < end:
        to = draws.randint(begin + 1, end)
        if run.joins and to > begin + 1 and depth < 3 and not (depth and (begin, to) == (0, end)):
            parts.append(Segment(drawn_plan(run, draws, begin, to, depth + 1)))
            begin = to
        else:
            options = [o for o in run.blocks[begin].options if o.stash is None or (o.travel and depth == 0)]
            parts.append(draws.choice(options).part(begin))
            begin += 1
    return tuple(parts)


def test_it_does_not_matter_what_a_network_is_under_before():
    network = nn.Sequential(Chain(*(nn.Sequential(nn.Conv1d(24, 24, 1), nn.BatchNorm1d(24)) for _ in range(2))))
    expected = measure_network(network, Crops(4, 24, 16))
    apply_strategy(network, "recompute_norm")
    assert measure_network(network, Crops(4, 24, 16)) == expected


def test_a_plan_is_never_worse_than_norms_that_are_made_again_everywhere():
    costs, names = measure_network(Small(1), CROPS)
    with QuickFakeTensorMode():
        network = Small(1).train()
        for expansions in (False, True):
            apply_strategy(network, "recompute_norm", expansions=expansions)
            peak, seconds = peak_and_seconds(network)
            for outlay in (fastest(costs, peak), leanest(costs, seconds)):
                put_under(network, names, outlay.plans, outlay.around)
                found = peak_and_seconds(network)
                assert found[0] <= peak
                assert found[1] <= 1.005 * seconds


def test_what_is_done_everywhere_is_measured_only_where_it_may_be_best():
    costs, _ = measure_network(Small(1), CROPS)
    assert min(whole.peak for whole in costs.wholes()) >= costs.least_of_wholes > 0
    unmeasured = replace(costs, wholes=lambda: pytest.fail("it was measured"))
    least = leanest(unmeasured, 2 * stored_plans(costs).seconds)
    assert fastest(unmeasured, least.peak) is not None


def peak_and_seconds(network: nn.Module) -> tuple[int, float]:
    network.zero_grad()
    with MemoryLedger() as ledger, Clock(CONSUMER_GPU) as clock:
        ledger.count([*network.parameters(), *network.buffers()])
        before = ledger.peak()
        network(torch.empty(CROPS.batch, CROPS.frames, CROPS.num_bins)).sum().backward()
    return ledger.peak() - before, clock.seconds


def plans_tried(costs: Costs) -> Iterator[tuple[Plan, ...]]:
    outlay = fastest(costs, int(0.6 * stored_plans(costs).peak))
    if outlay is not None:
        yield outlay.plans
    draws = random.Random(0)
    yield tuple(drawn_plan(run, draws) for run in costs.runs)


@pytest.mark.parametrize("structure", NETWORKS)
def test_the_predicted_peak_is_that_of_the_ledger(structure):
    """Less by some weights' gradients at most; a little more where a network holds what a block would, or views."""
    _, most, sharing = NETWORKS[structure]
    measure = IN_HOST_MEMORY if "host" in structure else BLOCKS
    costs, names = measure_network(network_of(structure), CROPS, measure, sharing=sharing)
    found = [outlay_of(costs, plans).peak / peak_of(structure, names, plans) - 1 for plans in plans_tried(costs)]
    assert min(found) > -0.0005
    assert min(found) < most
    assert max(found) < 0.1 + most


@pytest.mark.parametrize("structure", ["one run", "runs apart"])
def test_the_predicted_time_is_that_of_the_clock(structure):
    """But for sums of gradients of weights."""
    costs, names = measure_network(network_of(structure), CROPS, BLOCKS)
    for plans in (stored_plans(costs).plans, *plans_tried(costs)):
        with QuickFakeTensorMode(), Clock(CONSUMER_GPU) as clock, two_for_all(clock):
            network = network_of(structure).train()
            put_under(network, names, plans)
            network(torch.empty(CROPS.batch, CROPS.frames, CROPS.num_bins)).sum().backward()
        assert outlay_of(costs, plans).seconds / clock.seconds == pytest.approx(1, abs=0.001)
