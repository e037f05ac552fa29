"""memory=planned: the numbers of stored activations in the memory that was asked for, and what is refused."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from network_material import narrow
from reversible_material import (
    assert_bit_equal,
    assert_same_buffers,
    one_step,
    random_map,
    relative_error,
    tiny_network,
)
from torch import nn

from svtoolkit.config import LossConfig, MemoryStrategyConfig, PlannedConfig, SGDConfig
from svtoolkit.config.networks import ResNetConfig
from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.planner import choice
from svtoolkit.memory.planner.block_costs import BlockCosts
from svtoolkit.memory.planner.choice import GIB
from svtoolkit.memory.planner.clock import CONSUMER_GPU
from svtoolkit.memory.planner.surroundings import Crops, measure_network
from svtoolkit.memory.strategies.planned import Planned
from svtoolkit.models import build_model
from svtoolkit.planning.assembly import build_trainable, for_crops
from svtoolkit.reversible import Chain, SharedValues, SharesValues, Sharing, by_halves
from svtoolkit.reversible.plans import Leaf

torch.set_num_threads(1)

CROPS = {"frames": 24, "num_bins": 16}


def resnet() -> nn.Module:
    return build_model("resnet10", num_bins=16, embedding_dim=8, base_width=4)


def plans_of(network: nn.Module) -> list[Planned]:
    planners = [chain.planner for chain in network.modules() if isinstance(chain, Chain)]
    return [planner for planner in planners if isinstance(planner, Planned)]


def slope(network: nn.Module, crops: int = 256) -> float:
    """GiB an utterance of a step, on tensors without content."""
    with MemoryLedger() as ledger:
        ledger.count([*network.parameters(), *network.buffers()])
        before = sum(ledger.live().values())
        network(torch.empty(crops, CROPS["frames"], CROPS["num_bins"])).sum().backward()
    return (max(accumulate(change.difference for change in ledger.changes)) - before) / crops / GIB


@pytest.mark.parametrize(
    ("cast", "times", "by_blocks"), [(None, 1.2, False), (None, 1.6, True), (torch.bfloat16, 1.4, True)]
)
def test_gradients_and_statistics_are_those_of_stored_activations(cast, times, by_blocks):
    """Where norms are made again everywhere in the network to the bit, by a plan of the blocks up to rounding."""
    torch.manual_seed(0)
    network, frames = resnet(), random_map(3, 24, 16)
    stored = one_step(network, frames, "store", cast=cast)
    precision = None if cast is None else "bf16"
    found = one_step(network, frames, "planned", times=times, cast=cast, precision=precision, **CROPS)
    assert any(not isinstance(part, Leaf) for planned in plans_of(network) for part in planned.plan) == by_blocks
    if not by_blocks:
        assert_bit_equal(found, stored)
        return
    assert torch.equal(found.value, stored.value)
    assert_same_buffers(found, stored)
    exact = one_step(network, frames, "store")
    assert relative_error(found, stored) < (1e-5 if cast is None else relative_error(stored, exact))


@pytest.mark.parametrize("name", ["redimnet_b0", "redimnet2_b4", "redimnet2_b6", "eres2netv2", "eres2net34_base"])
def test_networks_that_mix_and_fuse_maps(name):
    """Under halves of halves in every chain, and with maps that are kept once."""
    torch.manual_seed(0)
    network, frames = narrow(name, num_bins=16, embedding_dim=8).double(), random_map(3, 24, 16).double()
    stored = one_step(network, frames, "store")
    found = one_step(network, frames, "store", planner=by_halves, sharing=Sharing())
    assert torch.equal(found.value, stored.value)
    assert_same_buffers(found, stored)
    assert relative_error(found, stored) < 1e-9


class Mixing(SharesValues):
    """Three chains that each read the sum of all before."""

    def __init__(self) -> None:
        super().__init__()
        self.chains = nn.ModuleList(
            Chain(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))) for _ in "123"
        )
        self.weights = nn.Parameter(torch.randn(4, 1, 1, 1))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        values = SharedValues(self.sharing)
        values.add(frames.tanh(), nn.Identity())
        for number, chain in enumerate(self.chains):
            weights = self.weights[: number + 1].unbind()
            mixed = values.mixed(weights)
            with values.made_again(mixed, weights):
                values.add(chain(mixed), nn.Identity())
        return values.mixed(self.weights.unbind())


@pytest.mark.parametrize(("times", "sharing"), [(1.0, None), (3.0, Sharing())])
def test_a_plan_says_what_becomes_of_values_that_are_shared(times, sharing):
    torch.manual_seed(0)
    network, frames = Mixing().double(), random_map(3, 24, 16).double()
    stored = one_step(network, frames, "store")
    found = one_step(network, frames, "planned", times=times, **CROPS)
    assert network.sharing == sharing
    assert relative_error(found, stored) < 1e-12
    apply_strategy(network, "store")
    assert network.sharing is None


def test_who_plans_again_finds_the_same_plan():
    """As a run does that is resumed in another process."""
    found = []
    for _ in range(2):
        choice._KNOWN.clear()
        network = Mixing()
        apply_strategy(network, "planned", times=3.0, inexact=True, offload=True, **CROPS)
        found.append((network.sharing, plans_of(network)))
    assert found[0] == found[1]
    assert found[0][1]


def test_the_memory_that_is_asked_for_is_not_exceeded():
    with QuickFakeTensorMode():
        network = resnet().train()
        stored = slope(network)
        apply_strategy(network, "planned", gib_per_utterance=0.85 * stored, **CROPS)
        assert 0.6 * stored < slope(network) <= 0.85 * stored


def test_enough_memory_stores_everything():
    network = resnet()
    apply_strategy(network, "planned", gib_per_utterance=1.0, **CROPS)
    assert all(isinstance(part, Leaf) and part.way == "store" for part in plans_of(network)[0].plan)


@pytest.mark.parametrize("inexact", [False, True])
def test_codes_of_8_bits_are_kept_only_where_they_may_be(inexact):
    network = nn.Sequential(Chain(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))))
    costs, _ = measure_network(network, Crops(4, 24, 16), BlockCosts(CONSUMER_GPU, stashes=inexact))
    assert any(option.stash for run in costs.runs for block in run.blocks for option in block.options) == inexact


def test_reversible_sequences_are_members_of_the_plan():
    torch.manual_seed(0)
    network, frames = tiny_network(), random_map(3, 16, 16)
    stored = one_step(network, frames, "store")
    found = one_step(network, frames, "planned", times=1.5, frames=16, num_bins=16)
    assert relative_error(found, stored) < 1e-5
    assert plans_of(network)


def refusal(network: nn.Module, **settings) -> str:
    apply_strategy(network, "store")
    with pytest.raises(UserError) as caught:
        apply_strategy(network, "planned", **settings)
    assert not plans_of(network)
    return str(caught.value)


def test_less_than_any_plan_takes_is_refused_with_what_is_possible():
    message = refusal(resnet(), gib_per_utterance=1e-6, **CROPS)
    assert "no plan of this network for 24 frames takes less than" in message
    possible = float(message.split("memory.gib_per_utterance=")[1].split()[0])
    apply_strategy(resnet(), "planned", gib_per_utterance=possible, **CROPS)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"times": 1.2, "gib_per_utterance": 0.1}, "give one of them"),
        ({"times": 0.9}, "memory.times is 0.9, expected a number from 1 on"),
        ({"gib_per_utterance": 0.0}, "memory.gib_per_utterance is 0.0, expected a number of GiB above 0"),
        ({"frames": None}, "memory.frames is null"),
        ({"num_bins": 0}, "memory.num_bins is 0, expected a whole number"),
        ({"precision": "fp8"}, "memory.precision is 'fp8', expected one of fp32, bf16, fp16"),
        ({"clock": "sundial"}, "memory.clock is 'sundial', expected counted or measured"),
        ({"seconds": [1.0]}, "memory.seconds are those of memory.clock=measured"),
        ({"num_bins": 17, "frames": 1}, "give frames and bins that it takes"),
    ],
)
def test_what_is_refused(settings, said):
    network = nn.Sequential(Chain(nn.Conv1d(16, 8, 5))) if settings.get("frames") else resnet()
    assert said in refusal(network, **{**CROPS, **settings})


def test_a_network_without_blocks_is_told_what_to_choose():
    assert "choose memory=store or memory=recompute_norm" in refusal(nn.Linear(3, 3), **CROPS)


def test_a_run_fills_in_its_crops():
    memory = PlannedConfig("planned", frames=100)
    assert for_crops(memory, 200, 80, "bf16") == PlannedConfig("planned", frames=100, num_bins=80, precision="bf16")
    plain = MemoryStrategyConfig("store")
    assert for_crops(plain, 200, 80, "bf16") is plain
    with QuickFakeTensorMode():
        trainable = build_trainable(
            ResNetConfig("resnet10", embedding_dim=8, base_width=4), PlannedConfig("planned", times=2.0), LossConfig(),
            SGDConfig(), num_bins=16, num_classes=10, device=torch.device("cpu"), channels_last=True, frames=24,
        )  # fmt: skip
    assert trainable.strategy == "planned"
    assert plans_of(trainable.network)


def test_nothing_is_said_among_what_a_command_prints(caplog):
    with caplog.at_level("INFO"):
        apply_strategy(resnet(), "planned", times=1.4, **CROPS)
    assert not caplog.records
