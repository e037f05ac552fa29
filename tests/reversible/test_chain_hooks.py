"""Hooks on a chain and on what is in it: they fire, and what they return counts."""

from __future__ import annotations

import copy

import pytest
import torch
from reversible_material import (
    FUNCTIONS,
    WIDTH,
    assert_bit_equal,
    assert_recomputed,
    chain_of,
    chain_with,
    distance,
    network_and_frames,
    one_step,
    random_map,
    weighted_sum,
    x_of,
)
from torch import Tensor

from svtoolkit.memory import apply_strategy

torch.set_num_threads(1)

# where a hook is: path in the chain; how often backward calls it again
PLACES = {
    "sequence": ("1", 1),
    "coupling": ("1.0", 1),
    "function": ("1.0.f", 1),
    "layer": ("1.1.g.0.conv", 1),
    "ordinary module": ("0", 1),
    "chain": ("", 0),
}
every_place = pytest.mark.parametrize(("path", "again"), PLACES.values(), ids=PLACES)


@every_place
def test_a_forward_hook_fires_once_in_forward_and_again_where_backward_evaluates(path, again):
    chain, calls = chain_with(FUNCTIONS["basic"]), []
    chain.get_submodule(path).register_forward_hook(lambda *_: calls.append("called"))
    assert_recomputed(chain, x_of())
    calls.clear()
    value = chain(x_of())
    assert len(calls) == 1
    value.sum().backward()
    assert len(calls) == 1 + again


def bent(result: Tensor | tuple[Tensor, ...] | None) -> Tensor | tuple[Tensor, ...] | None:
    if isinstance(result, tuple):
        return tuple(map(bent, result))
    return None if result is None else result.sin()


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@every_place
def test_what_a_forward_hook_returns_counts(function, path, again):
    path = path.replace("0.conv", "norm2") if function is FUNCTIONS["depth_first"] else path
    chain = chain_with(function)
    plain = one_step(chain, x_of(), "store")
    chain.get_submodule(path).register_forward_hook(lambda module, given, result: bent(result))
    found = assert_recomputed(chain, x_of())
    assert distance(found.value, plain.value) > 1e-4


@every_place
def test_what_a_forward_pre_hook_returns_counts(path, again):
    chain = chain_with(FUNCTIONS["basic"])
    plain = one_step(chain, x_of(), "store")
    chain.get_submodule(path).register_forward_pre_hook(lambda module, given: bent(given))
    found = assert_recomputed(chain, x_of())
    assert distance(found.value, plain.value) > 1e-4


@pytest.mark.parametrize("path", ["1", "1.0.f", "1.1.g.0.conv", "0", ""])
def test_what_a_backward_hook_returns_counts(path):
    chain = chain_with(FUNCTIONS["basic"])
    plain = one_step(chain, x_of(), "store")
    chain.get_submodule(path).register_full_backward_hook(lambda module, inputs, outputs: bent(inputs))
    found = assert_recomputed(chain, x_of())
    assert distance(found.gradients["input"], plain.gradients["input"]) > 1e-4


def test_a_hook_on_a_stage_sees_what_it_sees_with_stored_activations():
    network, x = network_and_frames()
    seen: dict[str, Tensor] = {}
    for strategy in ("store", "reversible"):
        model = copy.deepcopy(network)
        apply_strategy(model, strategy)
        model.stages[1].register_forward_hook(lambda stage, given, result, to=strategy: seen.update({to: result}))
        weighted_sum(model(x)).backward()
    assert torch.equal(seen["store"], seen["reversible"])


def test_a_hook_that_is_removed_leaves_nothing_behind():
    chain = chain_of(2, WIDTH)
    before = one_step(chain, random_map(2, WIDTH, 6, 8))
    for path in ("", "0", "0.0", "0.0.f", "0.1.g.0.conv"):
        chain.get_submodule(path).register_forward_hook(lambda *_: None).remove()
    assert_bit_equal(one_step(chain, random_map(2, WIDTH, 6, 8)), before)
    assert chain[0].is_invertible()
    assert chain[0][0].f.is_as_built()
