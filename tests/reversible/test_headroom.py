"""Headroom of the grid: what is said, and when, of streams that outgrow it."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from reversible_material import Scale, random_map, recovered

from svtoolkit.reversible import EXACT_BITS, AdditiveCoupling, ReversibleSequence, largest_exact, snap

torch.set_num_threads(1)

LAYOUTS = [torch.contiguous_format, torch.channels_last]


def outgrowing(value: float, bits: int = 14) -> ReversibleSequence:
    """Streams that reach ``value``."""
    sequence = ReversibleSequence([AdditiveCoupling(Scale(0.0, value), Scale(0.0))])
    sequence.exact_bits = bits
    return sequence


def ran(sequence: ReversibleSequence, steps: int = 1, dtype: torch.dtype = torch.float32) -> ReversibleSequence:
    with torch.no_grad():
        for _ in range(steps):
            sequence.run(torch.zeros(2, 4, 3, 3, dtype=dtype))
    return sequence


@pytest.mark.parametrize(
    ("value", "bits", "advice"), [(1024.0, 14, 13), (5000.0, 14, 10), (-1e4, 12, 9), (20.0, 20, 18)]
)
@pytest.mark.parametrize(("dtype", "finer"), [(torch.float32, 0), (torch.float64, 29)])
def test_a_stream_that_outgrows_the_grid_is_reported_once(caplog, value, bits, advice, dtype, finer):
    sequence = outgrowing(value, bits)
    with caplog.at_level(logging.WARNING):
        ran(sequence, dtype=dtype)
        assert caplog.messages == []  # it is noticed one forward pass late
        ran(sequence, steps=3, dtype=dtype)
    assert caplog.messages == [
        f"a reversible stream reached {abs(value):g}, the grid of 2**-{bits + finer} is exact below "
        f"{2.0 ** (24 - bits):g}: "
        f"inversion has begun to round; lower exact_bits to {advice}, or the learning rate"
    ]
    assert largest_exact(dtype, advice + finer) > abs(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e9])
def test_a_stream_that_no_grid_could_hold_is_reported_with_the_coarsest(caplog, value):
    with caplog.at_level(logging.WARNING):
        ran(outgrowing(value), steps=2)
    assert len(caplog.messages) == 1
    assert "a reversible stream reached" in caplog.messages[0]
    assert caplog.messages[0].endswith("lower exact_bits to 0, or the learning rate")


@pytest.mark.parametrize(
    ("value", "bits", "dtype", "exact"),
    [
        (1023.9, 14, torch.float32, True),
        (16383.0, 10, torch.float32, True),
        (5000.0, 14, torch.float32, False),
        (1023.9, 14, torch.float64, True),
    ],
)
def test_a_stream_with_headroom_is_not_reported(caplog, value, bits, dtype, exact):
    sequence = outgrowing(value, bits)
    sequence.exact = exact
    with caplog.at_level(logging.WARNING):
        ran(sequence, steps=3, dtype=dtype)
    assert caplog.messages == []


def test_above_the_limit_the_inversion_rounds_and_below_it_does_not():
    for value, is_exact in ((1000.0, True), (1500.0, False)):
        x = snap(random_map(2, 4, 6, 7), EXACT_BITS)
        taken, _, back = recovered(outgrowing(value), x, None)
        assert torch.equal(back, taken) == is_exact


def test_the_largest_value_is_read_once():
    sequence = outgrowing(-3.0)
    assert sequence.largest_value() is None
    ran(sequence)
    assert sequence.largest_value() == 3.0
    assert sequence.largest_value() is None


def test_a_copy_has_seen_no_stream():
    sequence = ran(outgrowing(-3.0))
    assert copy.deepcopy(sequence).largest_value() is None
    assert sequence.largest_value() == 3.0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_largest_value_is_that_of_every_stream_on_the_way(layout):
    """The first coupling adds 50 to the first stream, the second takes it away again."""
    sequence = ReversibleSequence(AdditiveCoupling(Scale(0.0, value), Scale(0.0)) for value in (50.0, -50.0))
    x = snap(random_map(2, 4, 3, 5), EXACT_BITS).contiguous(memory_format=layout)
    with torch.no_grad():
        y, _ = sequence.run(x)
    assert y.abs().max() < 10
    assert sequence.largest_value() == (x[:, :2] + 50).max()
