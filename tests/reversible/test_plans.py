"""Plans: every module once, in order, and as deep as Chen et al. say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svtoolkit.reversible import EightBits, Leaf, Segment, by_block, by_halves, by_root
from svtoolkit.reversible.plans import Plan, check_plan, one_by_one, positions


def depth(plan: Plan) -> int:
    return max((1 + depth(part.parts) for part in plan if isinstance(part, Segment)), default=0)


@pytest.mark.parametrize("planner", [by_block, by_root, by_halves])
@given(count=st.integers(0, 300))
def test_every_module_once_and_in_order(planner, count):
    assert list(positions(*planner(count))) == list(range(count))
    check_plan(planner(count), count)


@given(count=st.integers(1, 300))
def test_segments_of_the_root(count):
    sizes = [len(segment.parts) for segment in by_root(count)]
    assert abs(len(sizes) - math.sqrt(count)) <= 1
    assert max(sizes) - min(sizes) <= 1


@given(count=st.integers(2, 300))
def test_halves_are_as_deep_as_the_logarithm(count):
    assert depth(by_halves(count)) == math.ceil(math.log2(count))


def test_what_they_look_like():
    zero, one, two, three = (Segment((Leaf(position),)) for position in range(4))
    assert by_block(3) == (zero, one, two)
    assert by_block(1, EightBits()) == (Segment((Leaf(0, "store"),), EightBits()),)
    assert by_root(6) == (Segment((Leaf(0), Leaf(1), Leaf(2))), Segment((Leaf(3), Leaf(4), Leaf(5))))
    assert by_halves(4) == (Segment((zero, one)), Segment((two, three)))


def test_one_by_one_keeps_the_ways_and_the_stash():
    plan = (Leaf(0, "norm"), Segment((Leaf(1), Segment((Leaf(2, "expand"),))), EightBits()), Segment((Leaf(3),)))
    alone = [Segment((leaf,), EightBits()) for leaf in (Leaf(1), Leaf(2, "expand"))]
    assert one_by_one(plan) == [plan[0], *alone, plan[2]]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ((Leaf(0),), r"positions \[0\], expected each of 2 once, in order"),
        ((Leaf(1), Leaf(0)), r"positions \[1, 0\]"),
        ((Leaf(0), Segment((Leaf(1), Leaf(1)))), r"positions \[0, 1, 1\]"),
        ((Leaf(0), Segment(()), Leaf(1)), "a segment without parts"),
        ((Leaf(0), Segment((Leaf(1, "keep"),))), "the way 'keep', expected one of store, norm, expand, groups"),
    ],
)
def test_what_is_no_plan_is_refused(plan, message):
    with pytest.raises(ValueError, match=message):
        check_plan(plan, 2)
