"""memory=recompute_norm on every family: the numbers of stored activations, bit for bit, from less memory."""

from __future__ import annotations

import copy
from itertools import accumulate

import pytest
import torch
import torch.nn.functional as F
from network_material import RECOMPUTED, narrow
from reversible_material import assert_bit_equal, one_step, random_map, tiny_network
from torch import Tensor, nn

from svtoolkit.memory import apply_strategy
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models import build_model
from svtoolkit.models.blocks import BasicBlock, Bottleneck
from svtoolkit.models.df_resnet import build_df_resnet
from svtoolkit.reversible.recipes import recomputed_norms

torch.set_num_threads(1)


def resnet() -> nn.Module:
    return build_model("resnet10", num_bins=16, embedding_dim=8, base_width=4)


def kept_maps(module: nn.Module, x: Tensor, **settings: bool) -> float:
    """What is there after the forward pass, in maps of the size of ``x``; parameters and input left out."""
    with MemoryLedger() as ledger:
        with recomputed_norms(**settings):
            value = module(x)
        kept = list(accumulate(change.difference for change in ledger.changes))[-1]
    weights = sum(parameter.nbytes for parameter in [*module.parameters(), *module.buffers()])
    value.sum().backward()
    return (kept - weights - x.nbytes) / x.nbytes


@pytest.mark.parametrize(
    ("name", "expansions"), [*((name, True) for name in [*RECOMPUTED, "resnet10", "revnet"]), ("eres2netv2", False)]
)
def test_gradients_and_statistics_are_those_of_stored_activations(name, expansions):
    torch.manual_seed(0)
    networks = {"resnet10": resnet, "revnet": tiny_network}
    network = networks[name]() if name in networks else narrow(name, num_bins=16, embedding_dim=8)
    frames = random_map(3, 16, 16)
    stored = one_step(network, frames, "store")
    assert_bit_equal(one_step(network, frames, "recompute_norm", expansions=expansions), stored)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_autocast(cast):
    network = build_df_resnet(num_bins=8, embedding_dim=8, blocks=(1, 1, 0, 0))
    frames = random_map(2, 12, 8)
    stored = one_step(network, frames, "store", cast=cast)
    assert_bit_equal(one_step(network, frames, "recompute_norm", expansions=True, cast=cast), stored)


def test_frozen_norms_and_frozen_weights():
    network, frames = resnet(), random_map(3, 24, 16)
    for stage in network.stages[:2]:
        stage.eval().requires_grad_(False)
    assert_bit_equal(one_step(network, frames, "recompute_norm"), one_step(network, frames, "store"))


def test_what_a_basic_block_keeps():
    """The results of its two convolutions, and of the block; not that of the ReLU between them."""
    x = random_map(4, 16, 32, 32).requires_grad_()
    assert 3 <= kept_maps(BasicBlock(16, 16), x) < 3.1


def test_what_a_bottleneck_keeps_where_its_expansion_is_recomputed():
    """In maps of the wide input: two of a quarter of the width, and the result."""
    x = random_map(4, 32, 32, 32).requires_grad_()
    assert 2.5 <= kept_maps(Bottleneck(32, 8), x) < 2.6
    assert 1.5 <= kept_maps(Bottleneck(32, 8), x, expansions=True) < 1.6


@pytest.mark.parametrize("activation", [F.relu, F.gelu, F.silu, F.hardtanh, F.leaky_relu, torch.sigmoid, torch.tanh])
def test_every_activation(activation):
    """The result of the activation is not kept, whether autograd asks for it or for what it was made of."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
            self.norm = nn.BatchNorm2d(8)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(activation(self.norm(self.first(x))))

    x = random_map(4, 8, 32, 32).requires_grad_()
    assert 2 <= kept_maps(Block(), x) < 2.1


def test_in_place_activations():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x).clone().mul_(2)

    block, x = Block(), random_map(2, 4, 9, 9)
    assert_bit_equal(one_step(block, x, "recompute_norm"), one_step(block, x, "store"))


def test_an_activation_that_is_modified_afterwards_is_refused():
    layers = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))
    with recomputed_norms():
        value = layers[0](random_map(2, 4, 9, 9))
        result = layers[1](value)
    with torch.no_grad():
        value.add_(1)
    with pytest.raises(RuntimeError, match="was modified in place before its gradient"):
        result.sum().backward()


def test_the_graph_may_be_kept():
    network, frames = resnet(), random_map(2, 24, 16)
    apply_strategy(network, "recompute_norm")
    value, weight = network(frames).sum(), network.stages[0][0].conv1.weight
    first, second = (torch.autograd.grad(value, [weight], retain_graph=keep)[0] for keep in (True, False))
    assert torch.equal(first, second)


def test_another_strategy_ends_it_and_a_copy_has_its_own():
    network, frames = resnet(), random_map(2, 24, 16)
    apply_strategy(network, "recompute_norm")
    copied = copy.deepcopy(network)
    apply_strategy(network, "store")
    assert not network._forward_hooks
    assert not network._forward_pre_hooks
    assert_bit_equal(one_step(copied, frames, "recompute_norm"), one_step(network, frames, "store"))
    apply_strategy(copied, "recompute_norm")
    apply_strategy(copied, "recompute_norm", expansions=True)
    assert len(copied._forward_hooks) == 1


def test_a_forward_pass_that_fails_leaves_nothing_behind():
    network = resnet()
    apply_strategy(network, "recompute_norm")
    with pytest.raises(IndexError):
        network(random_map(24))
    (hook,) = network._forward_hooks.values()
    assert hook.__self__._entered == []
    assert torch.overrides._get_current_function_mode() is None


def test_nothing_is_packed_without_gradients():
    network = resnet().eval()
    apply_strategy(network, "recompute_norm")
    with torch.no_grad():
        assert network(random_map(2, 24, 16)).grad_fn is None


def test_the_strategy_keeps_less_where_expansions_are_recomputed():
    network, x = nn.Sequential(Bottleneck(32, 8), Bottleneck(32, 8)), random_map(4, 32, 16, 16)
    kept = []
    for expansions in (False, True):
        apply_strategy(network, "recompute_norm", expansions=expansions)
        with MemoryLedger() as ledger:
            value = network(x.requires_grad_())
            kept.append(sum(ledger.live().values()))
        value.sum().backward()
    assert kept[1] < 0.8 * kept[0]
