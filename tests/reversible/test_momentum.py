"""Residual functions with momentum: their formula, the inverse to the bit, and what of it is kept."""

from __future__ import annotations

import math

import pytest
import torch
from reversible_material import Scale, assert_bit_equal, one_step, random_map
from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.models.residual_functions import basic_function
from svtoolkit.reversible import PACKED_BITS, Chain, MomentumSequence
from svtoolkit.reversible.momentum import _pack, _unpack

torch.set_num_threads(1)


def sequence(bits: int, depth: int = 9, channels: int = 6) -> MomentumSequence:
    torch.manual_seed(bits)
    return MomentumSequence((basic_function(channels) for _ in range(depth)), bits)


@pytest.mark.parametrize("bits", PACKED_BITS)
def test_the_sequence_is_its_formula(bits):
    factors = (0.5, -0.3, 0.7, 0.2)
    x = random_map(2, 3, 4, 5, dtype=torch.float64)
    found = MomentumSequence(map(Scale, factors), bits)(x)
    momentum, velocity = -(2.0**-bits), torch.zeros_like(x)
    for factor in factors:
        velocity = momentum * velocity + factor * x
        x = x + velocity
    torch.testing.assert_close(found, x, rtol=0, atol=1e-10)


def test_without_bits_it_is_the_leapfrog():
    before = random_map(2, 3, 4, 5, dtype=torch.float64)
    after = MomentumSequence([Scale(0.5)], 0)(before)
    third = MomentumSequence([Scale(0.5), Scale(-0.3)], 0)(before)
    torch.testing.assert_close(third, before - 0.3 * after, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cast", [None, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("bits", PACKED_BITS)
def test_gradients_are_those_of_stored_activations_bit_for_bit(bits, cast):
    chain = Chain(sequence(bits))
    x = random_map(3, 6, 5, 7).to(memory_format=torch.channels_last if bits == 4 else torch.contiguous_format)
    assert_bit_equal(one_step(chain, x, "reversible", cast=cast), one_step(chain, x, "store", cast=cast))


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    chain = Chain(nn.Identity(), sequence(2, depth=3), sequence(1, depth=3))
    apply_strategy(chain, "reversible")
    x = random_map(2, 6, 5, 7).requires_grad_()
    y = chain(x).square().sum()
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x)
    assert torch.equal(first, second)


@pytest.mark.parametrize("bits", PACKED_BITS)
def test_what_is_kept(bits):
    depth, x = 5, random_map(2, 6, 5, 7)
    with torch.no_grad():
        result, record = sequence(bits, depth).run(x)
    assert [kept.shape for kept in record.velocity] == [result.shape]
    kept = [sum(part.nbytes for part in parts) for parts in record.remainders]
    parts = 2  # utterances, each of which is packed by itself
    assert kept == [parts * math.ceil(x[0].numel() * bits / 8)] * (depth - 1)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_bits_are_packed_without_loss(bits, size):
    codes = torch.randint(2**bits, (1, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(size))
    packed = _pack(codes, bits)
    assert packed.numel() == math.ceil(size * bits / 8)
    assert torch.equal(_unpack(packed, bits, codes), codes)


def test_refusals():
    with pytest.raises(ValueError, match="3 bits a value, expected one of 0, 1, 2, 4, 8"):
        MomentumSequence([Scale(1.0)], 3)
    with pytest.raises(ValueError, match="no functions"):
        MomentumSequence((), 4)
    chain = Chain(sequence(4, depth=2))
    with pytest.raises(UserError, match=r"leave memory\.exact at true"):
        apply_strategy(chain, "reversible", exact=False)
    apply_strategy(Chain(sequence(0, depth=2)), "reversible", exact=False)
    apply_strategy(chain, "reversible")
    with pytest.raises(ValueError, match="cannot be recovered"):
        chain.half()(random_map(2, 6, 5, 7).half().requires_grad_())
