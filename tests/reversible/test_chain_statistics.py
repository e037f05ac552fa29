"""Normalisation layers inside a chain that recomputes: statistics move once, frozen ones not at all."""

from __future__ import annotations

import copy

import pytest
import torch
from reversible_material import (
    FUNCTIONS,
    assert_recomputed,
    chain_of,
    norms_of,
    one_step,
    random_map,
    sequence_of,
    settle_norms,
    tiny_network,
    weighted_sum,
)
from torch import nn

from svtoolkit.models.recomputed_blocks import ConvNormRelu
from svtoolkit.reversible import Chain, by_block

torch.set_num_threads(1)

WIDTH = 8


def two_part_chain(function=FUNCTIONS["basic"]) -> Chain:
    """Norms in ordinary modules and in residual functions."""
    torch.manual_seed(1)
    return settle_norms(Chain(ConvNormRelu(1, WIDTH), sequence_of(2, WIDTH, function), nn.BatchNorm2d(WIDTH))).double()


def x_of() -> torch.Tensor:
    return random_map(3, 1, 6, 8, dtype=torch.float64)


def moved(chain: nn.Module, buffers: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, buffer in chain.named_buffers() if not torch.equal(buffer, buffers[name])}


@pytest.mark.parametrize("momentum", [0.1, 0.9, None])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_running_statistics_move_once_and_as_with_stored_activations(function, momentum):
    chain = two_part_chain(function)
    for norm in norms_of(chain):
        norm.momentum = momentum
        norm.num_batches_tracked.fill_(3)
    found = assert_recomputed(chain, x_of())
    assert moved(chain, found.buffers) == set(found.buffers)
    assert all(value == 4 for name, value in found.buffers.items() if name.endswith("num_batches_tracked"))


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_frozen_layers_within_a_network_that_trains(function):
    chain = two_part_chain(function)
    frozen = {name for position, (name, m) in enumerate(chain.named_modules()) if m in norms_of(chain) and position % 2}
    for name in frozen:
        chain.get_submodule(name).eval()
    assert 0 < len(frozen) < len(norms_of(chain))
    found = assert_recomputed(chain, x_of())
    assert {name.rpartition(".")[0] for name in moved(chain, found.buffers)} == {
        name for name, module in chain.named_modules() if module in norms_of(chain) and name not in frozen
    }


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_network_in_evaluation_mode_with_gradients(function):
    chain = two_part_chain(function).eval()
    found = assert_recomputed(chain, x_of())
    assert moved(chain, found.buffers) == set()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_layers_that_track_nothing(function, training):
    chain = two_part_chain(function).train(training)
    for norm in norms_of(chain):
        norm.track_running_stats, norm.running_mean, norm.running_var, norm.num_batches_tracked = (
            False,
            None,
            None,
            None,
        )
    assert_recomputed(chain, x_of())


def replaced(module: nn.Module, make) -> nn.Module:
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.BatchNorm2d:
                setattr(parent, name, make(layer.num_features))
    return settle_norms(module).double()


OTHERS = {
    "without affine": lambda channels: nn.BatchNorm2d(channels, affine=False),
    "tracking InstanceNorm": lambda channels: nn.InstanceNorm2d(channels, affine=True, track_running_stats=True),
    "GroupNorm": lambda channels: nn.GroupNorm(1, channels),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_layers_in_their_place(other, function):
    chain = replaced(two_part_chain(function), other)
    found = assert_recomputed(chain, x_of())
    # InstanceNorm has a count of batches and leaves it at 0
    expected = {name for name in found.buffers if other is OTHERS["without affine"] or "running" in name}
    assert moved(chain, found.buffers) == expected


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_synchronised_layers(function, training):
    """Without a process group they are BatchNorm, by way of their own forward pass."""
    plain = two_part_chain(function).train(training)
    chain = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    assert not any(coupling.f.is_as_built() for coupling in chain[1])
    found = assert_recomputed(chain, x_of())
    assert moved(chain, found.buffers) == (set(found.buffers) if training else set())
    torch.testing.assert_close(found.value, one_step(plain, x_of(), "store").value, rtol=1e-12, atol=1e-12)


def test_two_forward_passes_and_two_backward_passes():
    """Statistics move at every forward pass, and backward in any order finds its own batch."""
    network = tiny_network().double()
    batches = [random_map(2, 12, 16, dtype=torch.float64, seed=seed) for seed in (3, 4)]
    expected = [one_step(network, x, "store", learns_input=False).gradients for x in batches]
    one_step(network, batches[0], "reversible")  # leaves the network reversible, and as it was
    losses = [weighted_sum(network(x)) for x in batches]
    for loss in reversed(losses):
        loss.backward()
    assert all(norm.num_batches_tracked == 2 for norm in norms_of(network))
    for name, parameter in network.named_parameters():
        total = expected[0][name] + expected[1][name]
        torch.testing.assert_close(parameter.grad, total, rtol=1e-8, atol=1e-10)


def test_statistics_are_as_they_were_after_a_failed_backward_pass():
    chain = two_part_chain()
    chain.planner = by_block
    value = chain(x_of())
    before = {name: buffer.clone() for name, buffer in chain.named_buffers()}
    chain[1][0].f.register_forward_pre_hook(lambda module, given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        value.sum().backward()
    assert moved(chain, before) == set()
    assert all(norm.track_running_stats for norm in norms_of(chain))
    assert all(norm.running_mean is not None for norm in norms_of(chain))


def test_a_single_value_a_channel_is_refused_as_ever():
    chain = chain_of(1, WIDTH)
    chain.planner = by_block
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        chain(random_map(1, WIDTH, 1, 1))
