"""Plans: every module once, in order, and as deep as Chen et al. say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svtoolkit.reversible import by_block, by_halves, by_root
from svtoolkit.reversible.plans import Plan


def positions(plan: Plan) -> list[int]:
    return [each for part in plan for each in (positions(part) if isinstance(part, tuple) else [part])]


def depth(plan: Plan) -> int:
    return max((1 + depth(part) for part in plan if isinstance(part, tuple)), default=0)


@pytest.mark.parametrize("planner", [by_block, by_root, by_halves])
@given(count=st.integers(0, 300))
def test_every_module_once_and_in_order(planner, count):
    assert positions(planner(count)) == list(range(count))


@given(count=st.integers(1, 300))
def test_segments_of_the_root(count):
    sizes = [len(segment) for segment in by_root(count)]
    assert abs(len(sizes) - math.sqrt(count)) <= 1
    assert max(sizes) - min(sizes) <= 1


@given(count=st.integers(2, 300))
def test_halves_are_as_deep_as_the_logarithm(count):
    assert depth(by_halves(count)) == math.ceil(math.log2(count))


def test_what_they_look_like():
    assert by_block(3) == ((0,), (1,), (2,))
    assert by_root(6) == ((0, 1, 2), (3, 4, 5))
    assert by_halves(4) == (((0,), (1,)), ((2,), (3,)))
