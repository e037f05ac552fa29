"""What backward finds as forward did: random numbers and autocast."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from reversible_material import (
    FUNCTIONS,
    assert_recomputed,
    chain_of,
    noisy,
    norms_of,
    one_step,
    random_map,
    relative_error,
    sequence_of,
    settle_norms,
    weighted_sum,
)
from torch import Tensor, nn

from svtoolkit.memory import apply_strategy
from svtoolkit.models.recomputed_blocks import ConvNormRelu, SqueezedTransition
from svtoolkit.reversible import Chain

torch.set_num_threads(1)

WIDTH = 8
CASTS = [None, torch.bfloat16, torch.float16]


class FunctionalNoise(nn.Module):
    """Draws without a layer that says so, in evaluation mode too."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x + 0.3 * torch.randn_like(x)) * torch.rand(x.shape[0], 1, 1, 1)


def noisy_chain(kind: str) -> Chain:
    torch.manual_seed(1)
    function = {"dropout": noisy, "functional": FunctionalNoise}[kind]
    still = FUNCTIONS["basic"]
    return Chain(
        nn.Dropout(0.2),
        sequence_of(2, WIDTH, function),
        nn.Conv2d(WIDTH, WIDTH, 1),
        nn.Dropout2d(0.3),
        sequence_of(1, WIDTH, still, function),
        sequence_of(1, WIDTH, function, still),
    )


@pytest.mark.parametrize("kind", ["dropout", "functional"])
@pytest.mark.parametrize("seed", [0, 1])
def test_noise_is_drawn_once_and_replayed(kind, seed):
    chain, x = noisy_chain(kind).double(), random_map(3, WIDTH, 6, 8, dtype=torch.float64)
    assert_recomputed(chain, x, seed=seed)


def test_another_seed_is_another_gradient():
    """So that the test above can fail."""
    chain, x = noisy_chain("dropout"), random_map(3, WIDTH, 6, 8)
    assert relative_error(one_step(chain, x, seed=0), one_step(chain, x, "store", seed=1)) > 1e-2


@pytest.mark.parametrize("cast", [None, torch.bfloat16])
@pytest.mark.parametrize("kind", ["dropout", "functional"])
def test_noise_to_the_bit(kind, cast):
    assert_recomputed(noisy_chain(kind), random_map(3, WIDTH, 6, 8), cast=cast)


@pytest.mark.parametrize("strategy", ["store", "reversible"])
def test_backward_leaves_the_generator_where_forward_left_it(strategy):
    chain, x = noisy_chain("dropout"), random_map(3, WIDTH, 6, 8)
    apply_strategy(chain, strategy)
    torch.manual_seed(5)
    value = chain(x)
    drawn = torch.get_rng_state()
    value.sum().backward()
    assert torch.equal(torch.get_rng_state(), drawn)
    torch.manual_seed(5)
    assert not torch.equal(torch.get_rng_state(), drawn)


def test_numbers_drawn_between_forward_and_backward_do_not_matter():
    chain, x = noisy_chain("dropout").double(), random_map(3, WIDTH, 6, 8, dtype=torch.float64)
    expected = one_step(chain, x, learns_input=False)
    torch.manual_seed(0)
    value = chain(x)
    torch.rand(100)
    weighted_sum(value).backward()
    for name, parameter in chain.named_parameters():
        assert torch.equal(parameter.grad, expected.gradients[name])


def gradients_with(network: nn.Module, x: Tensor, forward: dict, backward: dict | None) -> dict[str, Tensor]:
    """Gradients after forward under one autocast and backward under another; None: outside any."""
    network.zero_grad()
    with torch.autocast("cpu", **forward):
        loss = weighted_sum(network(x).float())
        if backward == forward:
            loss.backward()
    if backward is None:
        loss.backward()
    elif backward != forward:
        with torch.autocast("cpu", **backward):
            loss.backward()
    return {name: parameter.grad.clone() for name, parameter in network.named_parameters()}


OFF = {"enabled": False}
BF16, FP16 = {"dtype": torch.bfloat16}, {"dtype": torch.float16}


@pytest.mark.parametrize("backward", [None, OFF, BF16, FP16], ids=["outside", "off", "bf16", "fp16"])
@pytest.mark.parametrize("forward", [OFF, BF16, FP16], ids=["off", "bf16", "fp16"])
def test_recomputation_finds_the_autocast_of_the_forward_pass(forward, backward):
    """Wherever backward is called: the gradients are those of stored activations, whose backward is called outside."""
    torch.manual_seed(1)
    parts = (ConvNormRelu(1, WIDTH), sequence_of(2, WIDTH), SqueezedTransition(WIDTH, 16), sequence_of(1, 16, noisy))
    network, x = settle_norms(Chain(*parts, nn.Conv2d(16, 4, 1))), random_map(3, 1, 6, 8)
    torch.manual_seed(2)
    apply_strategy(network, "store")
    expected = gradients_with(copy.deepcopy(network), x, forward, None)
    apply_strategy(network, "reversible")
    torch.manual_seed(2)
    found = gradients_with(network, x, forward, backward)
    assert [name for name, gradient in expected.items() if not torch.equal(found[name], gradient)] == []


def generic(channels: int) -> nn.Module:
    """Layers whose casts autocast would remember."""
    return nn.Sequential(nn.BatchNorm2d(channels), nn.Conv2d(channels, channels, 3, padding=1), nn.Tanh())


def test_casts_made_without_gradient_are_not_remembered():
    """Forward and backward twice in one region: the forward pass casts weights without gradient, backward needs one."""
    chain, x = chain_of(2, WIDTH, generic), random_map(3, WIDTH, 6, 8)
    apply_strategy(chain, "store")
    expected = gradients_with(chain, x, BF16, None)
    apply_strategy(chain, "reversible")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            chain.zero_grad()
            weighted_sum(chain(x).float()).backward()
    for name, parameter in chain.named_parameters():
        assert torch.equal(parameter.grad, expected[name]), name


def test_a_region_without_autocast_inside_one_with_it():
    chain, x = chain_of(2, WIDTH), random_map(3, WIDTH, 6, 8)

    class WideInside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chain = chain

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return self.chain(x)

    plain = one_step(chain, x)
    within = one_step(WideInside(), x, cast=torch.bfloat16)
    for name, gradient in plain.gradients.items():
        assert torch.equal(within.gradients[name if name == "input" else f"chain.{name}"], gradient)


class Mixed(nn.Module):
    """A residual function with a precision of its own in the middle."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x))
        with torch.autocast("cpu", enabled=False):
            x = self.second(F.softplus(x.float()))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.first(x)


@pytest.mark.parametrize("cast", CASTS)
def test_functions_with_regions_of_their_own(cast):
    chain, x = chain_of(3, WIDTH, Mixed), random_map(3, WIDTH, 6, 8)
    # weights used twice: stored, their gradients are added up in the narrow type where autocast remembers the cast
    with torch.autocast("cpu", enabled=False, cache_enabled=False):
        stored, found = (one_step(chain, x, strategy, cast=cast) for strategy in ("store", "reversible"))
    assert torch.equal(found.value, stored.value)
    assert relative_error(found, stored) < 1e-2
    assert len(norms_of(chain)) == 6
