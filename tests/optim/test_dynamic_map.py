"""Eight bits a value: the map against its bits and bitsandbytes', codes against a search in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from svtoolkit.optim.dynamic_map import build_dynamic_map, dequantise, quantise, zero_code

torch.set_num_threads(1)

SIGNED = pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])


def value_of_bits(bits: str) -> float:
    """The dynamic tree as drawn in Dettmers (ICLR 2016, figure 1): zeros, the one that ends them, the fraction."""
    zeros = len(bits) - len(bits.lstrip("0"))
    fraction = bits[zeros + 1 :]
    share = (int(fraction, 2) + 0.5) / 2 ** len(fraction) if fraction else 0.5
    return 10.0**-zeros * (0.1 + 0.9 * share)


@SIGNED
def test_the_map_is_the_tree_of_bits(signed):
    width = 7 if signed else 8
    magnitudes = [value_of_bits(f"{code:0{width}b}") for code in range(1 if signed else 2, 2**width)]
    entries = [*magnitudes, *(-magnitude for magnitude in magnitudes if signed), 0.0, 1.0]
    assert build_dynamic_map(signed).values.tolist() == pytest.approx(sorted(entries), rel=2e-7)


@SIGNED
def test_the_map_is_bitsandbytes_at_every_code(signed):
    theirs = pytest.importorskip("bitsandbytes.functional").create_dynamic_map(signed=signed)
    ours = build_dynamic_map(signed).values
    assert ours.dtype == torch.float32
    assert torch.equal(ours, theirs)


@SIGNED
def test_the_zero_has_a_code(signed):
    assert build_dynamic_map(signed).values[zero_code(signed)] == 0
    codes, absmax = quantise(torch.zeros(5), 2, signed=signed)
    assert codes.tolist() == [zero_code(signed)] * 5
    assert absmax.tolist() == [0.0] * 3
    assert dequantise(codes, absmax, 2, signed=signed).tolist() == [0.0] * 5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_codes_are_bitsandbytes(seed, signed):
    """Its CPU code looks the entry up in a table of 2^16 steps, which is a little off now and then (0.2 %)."""
    functional = pytest.importorskip("bitsandbytes.functional")
    values = torch.randn(256 * 400 + 17, generator=torch.Generator().manual_seed(seed))
    values = values if signed else values.abs()
    ours, absmax = quantise(values, 256, signed=signed)
    theirs, state = functional.quantize_blockwise(values, functional.create_dynamic_map(signed), blocksize=256)
    assert torch.equal(absmax, state.absmax)
    assert (ours == theirs).double().mean() >= 0.995
    entries, exact = build_dynamic_map(signed).values, values / absmax.repeat_interleave(256)[: len(values)]
    distances = [(entries[codes.long()].double() - exact.double()).abs() for codes in (ours, theirs)]
    assert (distances[0] <= distances[1]).all()
    torch.testing.assert_close(
        dequantise(ours, absmax, 256, signed=signed),
        functional.dequantize_blockwise(ours, state),
        rtol=1e-6,
        atol=0,
    )


magnitudes = st.floats(-1.0, 1.0, width=32) | st.floats(-(2.0**-17), 2.0**-17, width=32)


@given(arrays.arrays(np.float32, st.integers(1, 60), elements=magnitudes), st.integers(1, 70), st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_code_is_the_nearest_entry(array, block_size, signed):
    values = torch.from_numpy(array) if signed else torch.from_numpy(array).abs()
    codes, absmax = quantise(values, block_size, signed=signed)
    entries = build_dynamic_map(signed).values.double()
    for index, value in enumerate(values):
        scale = absmax[index // block_size]
        block = values[index // block_size * block_size :][:block_size]
        assert scale == block.abs().max()
        normalised = (value / scale).double() if scale else value.double()
        distances = (entries - normalised).abs()
        assert distances[int(codes[index])] == distances.min()
    scales = absmax.repeat_interleave(block_size)[: len(values)]
    decoded = dequantise(codes, absmax, block_size, signed=signed)
    assert torch.equal(decoded, build_dynamic_map(signed).values[codes.long()] * scales)


@SIGNED
def test_every_entry_and_every_midpoint_is_coded_right(signed):
    """Just above a true midpoint the upper entry is nearer, just below it the lower one."""
    entries = build_dynamic_map(signed)
    codes, _ = quantise(entries.values, 256, signed=signed)
    assert codes.tolist() == list(range(256))
    exact = (entries.values[:-1].double() + entries.values[1:].double()) / 2
    for toward, code in ((-math.inf, range(255)), (math.inf, range(1, 256))):
        beside = exact.float()
        wrong = beside <= exact if toward > 0 else beside >= exact
        beside = torch.where(wrong, beside.nextafter(torch.tensor(toward)), beside)
        codes, absmax = quantise(torch.cat([beside, torch.ones(1)]), 256, signed=signed)
        assert absmax.tolist() == [1.0]
        assert codes[:-1].tolist() == list(code)


def test_blocks_have_scales_of_their_own():
    values = torch.cat([torch.full((3,), 1e-6), torch.full((3,), 1e6)])
    codes, absmax = quantise(values, 3, signed=True)
    torch.testing.assert_close(absmax, torch.tensor([1e-6, 1e6]))
    torch.testing.assert_close(dequantise(codes, absmax, 3, signed=True), values)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_shows_and_stays_in_its_block(bad):
    values = torch.ones(6)
    values[1] = bad
    codes, absmax = quantise(values, 3, signed=True)
    decoded = dequantise(codes, absmax, 3, signed=True)
    assert not torch.isfinite(absmax[0])
    assert not torch.isfinite(decoded[1])
    assert decoded[3:].tolist() == [1.0] * 3
