"""Additive coupling and runs of it: the inverse, exact to the bit on the grid at any depth."""

from __future__ import annotations

import pytest
import torch
from reversible_material import (
    FUNCTIONS,
    Scale,
    chain_of,
    distance,
    norms_of,
    random_map,
    recovered,
    sequence_of,
    settle_norms,
)
from torch import nn

from svtoolkit.models.residual_functions import basic_function
from svtoolkit.reversible import EXACT_BITS, AdditiveCoupling, ReversibleSequence, snap
from svtoolkit.reversible.coupling import layout_of, split_streams

torch.set_num_threads(1)

DEPTH = 64
WIDTH, BINS, FRAMES = 32, 12, 20
"""Of a map large enough for rounding to begin to drift somewhere in it."""
CASTS = [None, torch.bfloat16, torch.float16]
LAYOUTS = [torch.contiguous_format, torch.channels_last]


def test_the_coupling_is_its_formula():
    coupling = AdditiveCoupling(Scale(3.0), Scale(0.5))
    x1, x2 = random_map(2, 3, 4, 5), random_map(2, 3, 4, 5, seed=6)
    y1, y2 = coupling(x1, x2)
    assert torch.equal(y1, x1 + 3 * x2)
    assert torch.equal(y2, x2 + 0.5 * y1)


@pytest.mark.parametrize("bits", [None, 10])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_inverse_of_a_coupling(function, bits):
    torch.manual_seed(0)
    coupling = settle_norms(AdditiveCoupling(function(4), function(4))).double().eval()
    x1, x2 = (snap(random_map(2, 4, 4, 5, dtype=torch.float64, seed=seed), 10) for seed in (5, 6))
    with torch.no_grad():
        back = coupling.inverse(*coupling(x1, x2, bits), bits)
    for found, expected in zip(back, (x1, x2), strict=True):
        assert distance(found, expected) < 1e-13
        assert bits is None or torch.equal(found, expected)


def test_streams_of_a_coupling_stay_on_the_grid():
    coupling = AdditiveCoupling(Scale(0.3), Scale(0.7))
    x1, x2 = (snap(random_map(2, 3, 4, 5, seed=seed), 6) for seed in (5, 6))
    for y in coupling(x1, x2, 6):
        assert torch.equal(snap(y, 6), y)


@pytest.mark.parametrize("cast", [None, torch.bfloat16])
def test_sixty_four_couplings_are_inverted_to_the_bit_on_the_grid(cast):
    sequence = chain_of(DEPTH, WIDTH)[0]
    taken, y, back = recovered(sequence, random_map(1, WIDTH, BINS, FRAMES), cast)
    assert torch.equal(back, taken)
    assert distance(y, taken) > 1  # the depth did something


def test_without_the_grid_sixty_four_couplings_drift_under_autocast():
    """What the grid is for; and how it is known that the tests of it can fail."""
    errors = {}
    for depth in (4, DEPTH):
        sequence = chain_of(depth, WIDTH)[0]
        sequence.exact = False
        taken, _, back = recovered(sequence, random_map(1, WIDTH, BINS, FRAMES), torch.bfloat16)
        errors[depth] = distance(back, taken)
    assert errors[DEPTH] > 1e-2 > errors[4]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_any_function_and_layout_is_inverted_to_the_bit_on_the_grid(function, cast, layout):
    sequence = settle_norms(chain_of(4, 16, function)[0])
    x = random_map(2, 16, 6, 7).contiguous(memory_format=layout)
    taken, _, back = recovered(sequence, x, cast)
    assert torch.equal(back, taken)


def test_float64_is_on_a_grid_as_much_finer_as_its_numbers_are():
    sequence = chain_of(DEPTH, 16)[0].double()
    x = random_map(2, 16, 6, 7, dtype=torch.float64)
    taken, y, back = recovered(sequence, x, None)
    assert torch.equal(back, taken)
    assert distance(taken, x) < 1e-12
    assert torch.equal(snap(y, EXACT_BITS + 29), y)
    assert not torch.equal(snap(y, EXACT_BITS + 28), y)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-11)])
def test_without_the_grid_the_inverse_is_off_by_rounding(dtype, tolerance):
    sequence = chain_of(DEPTH, 16)[0].to(dtype)
    sequence.exact = False
    taken, _, back = recovered(sequence, random_map(2, 16, 6, 7, dtype=dtype), None)
    assert 0 < distance(back, taken) < tolerance


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_run_in_place_is_the_forward_pass(function, cast, exact):
    sequence = settle_norms(chain_of(3, 16, function)[0])
    sequence.exact = exact
    stored = settle_norms(chain_of(3, 16, function)[0])
    stored.exact = exact
    x = random_map(2, 16, 6, 7)
    kept = x.clone()
    with torch.autocast("cpu", dtype=cast, enabled=cast is not None, cache_enabled=False):
        value = stored(x)
        with torch.no_grad():
            y, record = sequence.run(x)
    assert torch.equal(y, value)
    assert y.dtype == torch.float32
    assert torch.equal(x, kept)
    assert record.bits == (EXACT_BITS if exact else None)
    assert all(torch.equal(tensor, stored.state_dict()[name]) for name, tensor in sequence.state_dict().items())
    assert all(norm.num_batches_tracked == 1 for norm in norms_of(sequence))


def test_the_grid_is_the_one_asked_for():
    sequence = chain_of(2, 8)[0]
    sequence.exact_bits = 5
    with torch.no_grad():
        y = sequence(random_map(2, 8, 6, 7))
    assert torch.equal(snap(y, 5), y)
    assert not torch.equal(snap(y, 4), y)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_streams_are_wide_under_autocast_whatever_comes_in(cast):
    sequence = chain_of(2, 8)[0]
    with torch.no_grad(), torch.autocast("cpu", dtype=cast):
        y, record = sequence.run(random_map(2, 8, 6, 7).to(cast))
    assert (y.dtype, record.stream_dtype, record.input_dtype) == (torch.float32, torch.float32, cast)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_streams_of_half_precision_have_no_grid_and_are_not_inverted(dtype):
    sequence, x = chain_of(1, 8)[0].to(dtype), random_map(2, 8, 6, 7, dtype=dtype)
    assert sequence(x).dtype == dtype  # nothing is inverted here
    with pytest.raises(ValueError, match="cannot be recovered") as caught:
        sequence.run(x)
    assert str(caught.value) == (
        f"streams of {dtype} cannot be recovered from their sums; "
        "keep the weights in float32 and use autocast, or store the activations"
    )
    sequence.exact = False  # asked for
    with torch.no_grad():
        assert sequence.run(x)[0].dtype == dtype


def test_a_function_that_modifies_its_input_is_refused():
    sequence = sequence_of(
        1, 8, lambda channels: nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(channels, channels, 1))
    )
    with torch.no_grad(), pytest.raises(RuntimeError) as caught:
        sequence.run(random_map(2, 8, 6, 7))
    assert str(caught.value) == (
        "Sequential modifies its input in place, which nothing could be recomputed from; "
        "begin it with a layer that does not (inplace=False)"
    )


def test_a_sequence_takes_nothing_but_couplings():
    sequence = sequence_of(1, 8)
    sequence.append(nn.ReLU())
    with pytest.raises(TypeError, match="made of couplings, with poolings between them, and nothing else"):
        sequence(random_map(2, 8, 6, 7))


class OtherCoupling(AdditiveCoupling):
    """May do anything."""


def test_what_was_built_otherwise_is_not_inverted():
    assert sequence_of(2, 8).is_invertible()
    hooked, hooked_inside = sequence_of(2, 8), sequence_of(2, 8)
    hooked.register_forward_hook(lambda *_: None)
    hooked_inside[1].register_forward_hook(lambda *_: None)
    other = ReversibleSequence([OtherCoupling(basic_function(4), basic_function(4))])
    assert not any(sequence.is_invertible() for sequence in (hooked, hooked_inside, other))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_streams_are_copies_in_the_layout_of_the_map(layout):
    x = random_map(2, 8, 3, 4).contiguous(memory_format=layout)
    assert layout_of(x) == layout
    for stream, half in zip(split_streams(x, torch.float64), x.chunk(2, dim=1), strict=True):
        assert layout_of(stream) == layout
        assert torch.equal(stream, half.double())
    split_streams(x, x.dtype)[0].zero_()
    assert x.any(dim=1).all()


@pytest.mark.parametrize("shape", [(2, 1, 3, 4), (2, 8, 1, 1), (2, 8, 4)])
def test_a_map_that_could_be_either_is_contiguous(shape):
    assert layout_of(torch.zeros(shape)) == torch.contiguous_format
