"""The margin's way up: WeSpeaker's formula and values, the straight line, and what makes no schedule."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svtoolkit.errors import UserError
from svtoolkit.losses import MarginSchedule

STEPS = 4265  # an epoch of WeSpeaker's voxceleb/v2: 1 092 009 utterances, batch 256


def ramp(name: str = "exponential", **changes) -> MarginSchedule:
    """WeSpeaker's recipe: 0 to 0.2, epochs 20 to 40. It counts epochs from 1, so that 19 and 39 are finished then."""
    recipe = {"initial": 0.0, "final": 0.2, "start": 19 / 150, "end": 39 / 150, "total_steps": 150 * STEPS}
    return MarginSchedule(name, **{**recipe, **changes})


@pytest.mark.parametrize(
    ("epoch", "margin"), [(1, 0), (20, 0), (21, 0.058), (26, 0.175), (31, 0.195), (40, 0.2), (150, 0.2)]
)
def test_wespeakers_values_at_the_beginning_of_an_epoch(epoch, margin):
    assert ramp()((epoch - 1) * STEPS) == pytest.approx(margin, abs=6e-4)


@pytest.mark.parametrize(("name", "increase_type"), [("exponential", "exp"), ("linear", "linear")])
@pytest.mark.parametrize("initial", [0.0, 0.05])
def test_every_step_is_wespeakers(wespeaker, name, increase_type, initial):
    projection = SimpleNamespace(margin=None)
    projection.update = lambda margin: setattr(projection, "margin", margin)
    theirs = wespeaker("utils.schedulers").MarginScheduler(
        SimpleNamespace(projection=projection),
        epoch_iter=50,
        increase_start_epoch=3,
        fix_start_epoch=6,
        initial_margin=initial,
        final_margin=0.2,
        update_margin=True,
        increase_type=increase_type,
    )
    ours = MarginSchedule(name, initial=initial, final=0.2, start=0.2, end=0.5, total_steps=10 * 50)
    for step in range(10 * 50):
        theirs.step(step)
        assert ours(step) == pytest.approx(theirs.get_margin(), abs=1e-15), f"step {step}"


def test_exponential_by_formula():
    schedule = ramp(start=0.25, end=0.75, total_steps=40)
    for step in range(10, 30):
        share = (step - 10) / 20
        assert schedule(step) == pytest.approx(0.2 * (1 - (1e-3 / (1 + 1e-6)) ** share), abs=1e-15)
    assert schedule(29) < 0.2 == schedule(30)


def test_linear_by_formula():
    schedule = ramp("linear", initial=0.1, final=0.3, start=0.25, end=0.75, total_steps=40)
    assert [schedule(step) for step in (0, 9, 10, 15, 20, 30, 31)] == pytest.approx(
        [0.1, 0.1, 0.1, 0.15, 0.2, 0.3, 0.3]
    )


@given(st.integers(0, 10**7))
def test_constant_is_the_final_margin_from_the_first_step(step):
    assert MarginSchedule("constant", initial=0.0, final=0.3, start=0, end=0, total_steps=100)(step) == 0.3


@given(
    name=st.sampled_from(["linear", "exponential"]),
    margins=st.tuples(st.floats(0, 1.5), st.floats(0, 1.5)).map(sorted),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    total=st.integers(1, 10_000),
    steps=st.lists(st.integers(0, 12_000), min_size=2, max_size=20).map(sorted),
)
def test_it_never_falls_and_stays_between_its_ends(name, margins, ends, total, steps):
    schedule = MarginSchedule(name, margins[0], margins[1], ends[0], ends[1], total)
    values = [schedule(step) for step in steps]
    for earlier, later in itertools.pairwise(values):
        assert earlier <= later + 1e-12
    assert all(margins[0] - 1e-12 <= value <= margins[1] + 1e-12 for value in values)
    assert schedule(math.ceil(ends[1] * total)) == margins[1]


@pytest.mark.parametrize("name", ["linear", "exponential"])
def test_a_ramp_of_no_length_is_a_step(name):
    schedule = ramp(name, start=0.5, end=0.5, total_steps=10)
    assert [schedule(step) for step in (0, 4, 5, 6)] == [0, 0, 0.2, 0.2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "exp"}, "margin_schedule.name is 'exp', expected one of constant, linear, exponential"),
        ({"start": -0.1}, "margin_schedule.start is -0.1 and margin_schedule.end is 0.26; expected shares of the run"),
        ({"start": 0.9, "end": 0.8}, "margin_schedule.start is 0.9 and margin_schedule.end is 0.8; expected shares"),
        ({"end": 39}, "margin_schedule.end is 39; expected shares of the run, 0 <= start <= end <= 1"),
        ({"start": math.nan}, "margin_schedule.start is nan"),
        ({"end": math.nan}, "margin_schedule.end is nan"),
        ({"initial": -0.1}, "margin_schedule.initial is -0.1 and loss.margin is 0.2; expected 0 <= initial <= margin"),
        ({"initial": 0.3}, "margin_schedule.initial is 0.3 and loss.margin is 0.2; expected 0 <= initial <= margin"),
        ({"initial": math.nan}, "margin_schedule.initial is nan"),
    ],
)
def test_what_makes_no_ramp(changes, message):
    with pytest.raises(UserError) as caught:
        ramp(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize("changes", [{"initial": 0.1}, {"end": 1}, {"start": 1, "end": 1}])
def test_constant_with_a_ramp_is_refused(changes):
    plain = {"initial": 0.0, "final": 0.2, "start": 0, "end": 0, "total_steps": 10}
    with pytest.raises(UserError) as caught:
        MarginSchedule("constant", **{**plain, **changes})
    assert "constant has no ramp" in str(caught.value)
    assert "margin_schedule=linear" in str(caught.value)
