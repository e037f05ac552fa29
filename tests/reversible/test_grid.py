"""The dyadic grid: nearest multiple, ties to even, sums that do not round below the limit and do above."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from svtoolkit.reversible import largest_exact, snap
from svtoolkit.reversible.grid import snap_

torch.set_num_threads(1)

BITS = st.integers(0, 20)
STEPS = st.integers(-(2**24) + 1, 2**24 - 1)


@given(st.floats(-1000, 1000, width=32), BITS)
def test_the_nearest_multiple_with_ties_to_even(value, bits):
    snapped = snap(torch.tensor(value), bits)
    # in float64 the product is exact, and numpy rounds halves to even, too
    assert snapped.item() == np.rint(np.float64(value) * 2.0**bits) / 2.0**bits
    assert abs(snapped.item() - value) <= 2.0 ** -(bits + 1)


@pytest.mark.parametrize(("halves", "nearest"), [(1, 0), (3, 4), (5, 4), (7, 8), (-1, 0), (-3, -4), (-5, -4)])
def test_a_tie_goes_to_the_even_multiple(halves, nearest):
    assert snap(torch.tensor(halves * 2.0**-15), 14).item() == nearest * 2.0**-15


@given(st.lists(st.floats(-900, 900, width=32), min_size=1, max_size=20), BITS)
def test_it_is_idempotent(values, bits):
    once = snap(torch.tensor(values), bits)
    assert torch.equal(snap(once, bits), once)


@given(STEPS, STEPS, BITS)
def test_sums_on_the_grid_are_taken_back_exactly(first, second, bits):
    if abs(first + second) >= 2**24:
        second = -second
    a, b = (torch.tensor(steps, dtype=torch.float32) * 2.0**-bits for steps in (first, second))
    total = a + b
    assert total.double().item() == (first + second) * 2.0**-bits
    assert torch.equal(total - b, a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [0, 10, 14, 20])
def test_the_limit_is_where_steps_cease_to_count(dtype, bits):
    limit, step = largest_exact(dtype, bits), 2.0**-bits
    assert limit == 2.0 ** ((24 if dtype == torch.float32 else 53) - bits)
    inside, outside = torch.tensor(limit - 2 * step, dtype=dtype), torch.tensor(limit, dtype=dtype)
    assert (inside + step) - inside == step
    assert (outside + step) - outside != step


def test_the_gradient_passes_straight_through():
    x = torch.tensor([0.1, -3.7, 1e-9, 0.0], requires_grad=True)
    upstream = torch.tensor([1.0, -2.5, 3.25, 1e-3])
    snap(x, 3).backward(upstream)
    assert torch.equal(x.grad, upstream)


def test_snapping_leaves_its_argument_alone_and_in_place_does_not():
    x = torch.tensor([0.1, -3.7])
    kept = x.clone()
    snapped = snap(x, 4)
    assert torch.equal(x, kept)
    assert not torch.equal(snapped, kept)
    assert snap_(x, 4) is x
    assert torch.equal(x, snapped)


def test_what_is_no_number_stays_none():
    assert snap(torch.tensor([float("nan"), float("inf"), -float("inf")]), 14).tolist()[1:] == [
        float("inf"),
        -float("inf"),
    ]
    assert snap(torch.tensor(float("nan")), 14).isnan()
