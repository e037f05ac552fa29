"""Memory strategies: the word that comes back, what it does to a network, and what is refused."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from network_material import BUILDERS, is_called_reversible
from reversible_material import (
    assert_bit_equal,
    one_step,
    random_map,
    relative_error,
    tiny_network,
)
from torch import nn

from svtoolkit.config import MemoryStrategyConfig
from svtoolkit.errors import UserError
from svtoolkit.memory import STRATEGIES, apply_strategy
from svtoolkit.memory.registry import LARGEST_BITS
from svtoolkit.models import build_model
from svtoolkit.models.registry import NETWORKS
from svtoolkit.registry import Row
from svtoolkit.reversible import EXACT_BITS, Chain, ReversibleSequence, by_block

torch.set_num_threads(1)

LOAD = Row.load


def resnet() -> nn.Module:
    return build_model("resnet10", num_bins=16, embedding_dim=8, base_width=4)


def refusal(network: nn.Module, *args, **options) -> str:
    with pytest.raises(UserError) as caught:
        apply_strategy(network, *args, **options)
    return str(caught.value)


def sequences_of(network: nn.Module) -> list[ReversibleSequence]:
    return [module for module in network.modules() if isinstance(module, ReversibleSequence)]


def nodes_behind(value: torch.Tensor) -> set[str]:
    """Kinds of steps of autograd that a value came from."""
    pending, seen = [value.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            pending.extend(parent for parent, _ in node.next_functions)
    return {node.name() for node in seen}


@pytest.mark.parametrize(
    ("strategy", "reversible", "ordinary"),
    [("auto", "reversible", "store"), ("reversible", "reversible", None), ("store", "store", "store")],
)
def test_the_strategy_in_force(strategy, reversible, ordinary):
    network = tiny_network()
    assert apply_strategy(network, strategy) == reversible
    frames = random_map(2, 12, 16)
    assert ("_RecomputedBackward" in nodes_behind(network(frames))) == (reversible == "reversible")
    assert ("NativeBatchNormBackward0" in nodes_behind(network(frames))) == (reversible == "store")
    if ordinary is not None:
        assert apply_strategy(resnet(), strategy) == ordinary


def test_auto_is_the_default():
    assert apply_strategy(tiny_network()) == "reversible"
    assert apply_strategy(resnet()) == "store"


def test_a_network_is_stored_until_told_otherwise():
    assert "_RecomputedBackward" not in nodes_behind(tiny_network()(random_map(2, 12, 16)))


def test_no_builder_makes_reversible_networks_and_others():
    reversible = {row.target for name, row in NETWORKS.rows.items() if is_called_reversible(name)}
    assert {name for name, row in NETWORKS.rows.items() if row.target in reversible} == {
        *filter(is_called_reversible, NETWORKS.rows)
    }


@pytest.mark.parametrize("name", BUILDERS.values())
def test_every_builder_of_the_registry(name):
    """Reversible are those that are called so, and all their chains."""
    with torch.device("meta"):
        network = build_model(name, num_bins=16, embedding_dim=8)
    strategy = apply_strategy(network)
    strategy_of_name = "hybrid" if "revnext" in name else "reversible" if is_called_reversible(name) else "store"
    assert strategy == strategy_of_name
    assert network.embedding_dim == 8
    chains = [module for module in network.modules() if isinstance(module, Chain)]
    assert {chain.planner for chain in chains} <= {None if strategy == "store" else by_block}
    long_stages = {"reversed_resnet34": 3, "revnext_tiny": 1, "revnext57": 1, "revnext137": 1}.get(name, 4)
    assert len(sequences_of(network)) == (0 if strategy == "store" else long_stages)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("bits", [0, 11, LARGEST_BITS])
@pytest.mark.parametrize("strategy", ["auto", "reversible", "store"])
def test_the_grid_belongs_to_the_arithmetic_whatever_the_strategy(strategy, exact, bits):
    network = tiny_network()
    apply_strategy(network, strategy, exact=exact, exact_bits=bits)
    assert [(each.exact, each.exact_bits) for each in sequences_of(network)] == [(exact, bits)] * 4


def test_the_grid_is_put_back_by_default():
    network = tiny_network()
    apply_strategy(network, exact=False, exact_bits=9)
    apply_strategy(network)
    assert {(each.exact, each.exact_bits) for each in sequences_of(network)} == {(True, EXACT_BITS)}


def test_exact_mode_changes_the_arithmetic_of_both_strategies():
    network, frames = tiny_network(), random_map(2, 12, 16)
    plain = one_step(network, frames, "store", exact=False)
    exact = [one_step(network, frames, strategy, bits=8) for strategy in ("store", "reversible")]
    assert_bit_equal(exact[1], exact[0])
    assert relative_error(exact[0], plain) > 1e-4


def test_results_and_weights_are_not_touched():
    network, frames = tiny_network(), random_map(2, 12, 16)
    before = copy.deepcopy(network.state_dict())
    stored, found = one_step(network, frames, "store"), one_step(network, frames, "reversible")
    assert_bit_equal(found, stored)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_the_strategy_may_change_from_step_to_step():
    """The way of six mixed steps is that of six stored ones, to the bit."""
    weights = []
    for words in (["store"] * 6, ["reversible", "store", "auto", "store", "store", "reversible"]):
        network, frames = tiny_network(), random_map(3, 12, 16)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
        for strategy in words:
            apply_strategy(network, strategy)
            optimizer.zero_grad()
            network(frames).square().sum().backward()
            optimizer.step()
        weights.append(network.state_dict())
    first, second = weights
    assert [name for name, tensor in first.items() if not torch.equal(tensor, second[name])] == []


def test_the_strategy_may_change_between_forward_and_backward():
    """Backward belongs to its forward pass."""
    network, frames = tiny_network(), random_map(2, 12, 16)
    expected = one_step(network, frames, "reversible", learns_input=False)
    apply_strategy(network, "reversible")
    value = network(frames)
    apply_strategy(network, "store", exact=False, exact_bits=3)
    (value * torch.arange(value.numel(), dtype=value.dtype).cos().view_as(value)).sum().backward()
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter.grad, expected.gradients[name]), name


@pytest.mark.parametrize("word", ["recompute", "", "Store", None, 1])
def test_an_unknown_strategy_is_refused(word):
    names = ", ".join(["auto", *STRATEGIES])
    assert refusal(tiny_network(), word) == f"memory.strategy is {word!r}, expected one of {names}"


@pytest.mark.parametrize("word", ["always", "", None, 1])
def test_an_unknown_exactness_is_refused(word):
    assert refusal(tiny_network(), exact=word) == f"memory.exact is {word!r}, expected true or false"


@pytest.mark.parametrize("bits", [-1, LARGEST_BITS + 1, 14.0, "14", None, True])
def test_a_grid_out_of_range_is_refused(bits):
    message = f"memory.exact_bits is {bits!r}, expected a whole number from 0 to {LARGEST_BITS}"
    assert refusal(tiny_network(), exact_bits=bits) == message


def test_a_network_without_reversible_stages_is_told_what_to_choose():
    assert refusal(resnet(), "reversible") == (
        "memory=reversible needs a network with reversible stages, and this one has none; "
        "choose memory=store, or a network such as model=revnet57 or model=df_revnet89"
    )


def test_the_networks_that_it_is_told_of_are_reversible():
    for name in ("revnet57", "df_revnet89"):
        with torch.device("meta"):
            assert apply_strategy(build_model(name), "reversible") == "reversible"


@pytest.mark.parametrize("options", [{"strategy": "bogus"}, {"exact": "bogus"}, {"exact_bits": -1}])
def test_a_refusal_changes_nothing(options):
    network = tiny_network()
    apply_strategy(network, "reversible", exact=False, exact_bits=9)
    refusal(network, **options)
    assert all(stage.planner is by_block for stage in network.stages)
    assert {(each.exact, each.exact_bits) for each in sequences_of(network)} == {(False, 9)}


def test_a_strategy_of_a_package(monkeypatch):
    """It is a row with settings of its own, which are checked; auto does not choose it."""
    seen = []

    def elsewhere(network: nn.Module, *, share: float) -> None:
        if not sequences_of(network):
            raise UserError("memory=elsewhere needs reversible stages here; choose memory=store")
        seen.append(share)

    @dataclass
    class ElsewhereConfig(MemoryStrategyConfig):
        share: float = 0.5

    monkeypatch.setattr(Row, "load", lambda row: elsewhere if row.target == "there" else LOAD(row))
    monkeypatch.setitem(STRATEGIES.rows, "elsewhere", Row("there", ElsewhereConfig))
    network, ordinary = tiny_network(), resnet()
    assert [apply_strategy(network), apply_strategy(network, "elsewhere"), apply_strategy(ordinary)] == [
        "reversible", "elsewhere", "store"
    ]  # fmt: skip
    apply_strategy(network, "elsewhere", share=1.0)
    assert seen == [0.5, 1.0]
    assert "memory=elsewhere" in refusal(ordinary, "elsewhere")
    assert ", elsewhere" in refusal(ordinary, "bogus")
    assert "share is 'all', expected" in refusal(network, "elsewhere", share="all")
    assert "memory strategy store has no option 'share'" in refusal(network, "store", share=1.0)
