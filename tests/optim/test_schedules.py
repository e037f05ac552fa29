"""Learning rates over steps: WeSpeaker's and torch's own numbers, ends, directions, and what makes no schedule."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.optim import LearningRateSchedule

torch.set_num_threads(1)

STEPS = 4265  # an epoch of WeSpeaker's voxceleb/v2: 1 092 009 utterances, batch 256
NAMES = ("exponential", "cosine", "one_cycle")


def wespeaker_recipe(**changes) -> LearningRateSchedule:
    """0.1 -> 5e-5 at batch 64, times 4 at batch 256."""
    recipe = {"name": "exponential", "lr": 0.4, "warmup": 6 / 150, "start_factor": 0.0, "end_factor": 5e-4}
    return LearningRateSchedule(**{**recipe, "total_steps": 150 * STEPS, **changes})


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [(0, 0), (6, 0.2951), (20, 0.1452), (40, 0.0527), (75, 0.00894), (100, 0.00252), (150, 0.0002)],
)
def test_wespeakers_values_after_an_epoch(epoch, rate):
    found = wespeaker_recipe()(epoch * STEPS)
    assert found == pytest.approx(rate, rel=2e-3), "the values are given to three or four digits"


def test_wespeakers_peak_is_at_the_end_of_the_warm_up():
    schedule = wespeaker_recipe()
    rates = [schedule(step) for step in range(0, 150 * STEPS, 5)]
    assert max(rates) == schedule(6 * STEPS) == pytest.approx(0.4 * math.exp(6 / 150 * math.log(2e-4 / 0.4)))


@pytest.mark.parametrize(("scale", "from_zero"), [(4.0, True), (1.0, True), (4.0, False)])
def test_every_step_is_wespeakers(wespeaker, scale, from_zero):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    theirs = wespeaker("utils.schedulers").ExponentialDecrease(
        optimizer,
        num_epochs=9,
        epoch_iter=40,
        initial_lr=0.1,
        final_lr=5e-5,
        warm_up_epoch=2,
        scale_ratio=scale,
        warm_from_zero=from_zero,
    )
    ours = wespeaker_recipe(
        lr=0.1 * scale,
        warmup=80 / 360,
        start_factor=0.0 if from_zero else 1 / scale,
        total_steps=360,
    )
    for step in range(360):
        theirs.step(step)
        assert ours(step) == pytest.approx(theirs.get_lr(), rel=1e-12, abs=1e-18), f"step {step}"


@pytest.mark.parametrize(("warmup", "total"), [(30, 100), (1, 100), (50, 100), (98, 100)])
def test_one_cycle_is_torchs(warmup, total):
    """torch ends its first phase a step before pct_start * total_steps, and the last a step before total_steps."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=0.4,
        total_steps=total + 1,
        pct_start=(warmup + 1) / (total + 1),
        div_factor=0.4 / 0.01,
        final_div_factor=0.01 / 1e-4,
        anneal_strategy="cos",
        cycle_momentum=False,
    )
    ours = LearningRateSchedule("one_cycle", 0.4, warmup / total, 0.01 / 0.4, 1e-4 / 0.4, total)
    for step in range(total + 1):
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9), f"step {step}"
        optimizer.step()
        if step < total:
            theirs.step()


def test_cosine_is_torchs_annealing_after_the_warm_up():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.4)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=80, eta_min=1e-3)
    ours = LearningRateSchedule("cosine", 0.4, 0.2, 0.0, 1e-3 / 0.4, 100)
    assert [ours(step) for step in range(0, 20)] == pytest.approx([0.4 * step / 20 for step in range(20)])
    for step in range(20, 101):
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9), f"step {step}"
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("name", ["cosine", "one_cycle"])
def test_halfway_values(name):
    schedule = LearningRateSchedule(name, lr=0.4, warmup=1 / 3, start_factor=0.5, end_factor=0.25, total_steps=30)
    assert schedule(5) == pytest.approx(0.3)
    assert schedule(20) == pytest.approx(0.25)
    quarter = 0.25 if name == "cosine" else 0.5 - 0.5 * math.cos(math.pi / 4)
    assert LearningRateSchedule(name, 1.0, 0.2, 0.0, 0.1, 40)(2) == pytest.approx(quarter)


rates = st.floats(1e-6, 10)
plans = st.tuples(st.integers(1, 400), st.floats(0, 0.99))


@given(st.sampled_from(NAMES), rates, st.floats(1e-6, 1), st.floats(0, 1), plans)
@settings(max_examples=150, deadline=None)
def test_ends_and_directions(name, peak, end, start, plan):
    """It begins at start_factor (without a warm-up: at the peak), never falls before the peak, never rises after it."""
    total, share = plan
    schedule = LearningRateSchedule(name, peak, share, start, end, total)
    final, warmup = end * peak, schedule.warmup_steps
    assert warmup == pytest.approx(share * total, rel=1e-12)
    values = [schedule(step) for step in range(total + 1)]
    assert values[0] == pytest.approx(start * peak if warmup else peak, rel=1e-12, abs=1e-15)
    assert values[-1] == pytest.approx(final, rel=1e-9)
    assert all(0 <= value <= peak * (1 + 1e-12) for value in values)
    after = values[math.ceil(warmup) :]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(after))
    if name != "exponential":
        before = values[: math.floor(warmup) + 1]
        assert all(earlier <= later * (1 + 1e-9) for earlier, later in itertools.pairwise(before))
        if warmup == int(warmup):
            assert values[int(warmup)] == pytest.approx(peak)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_beyond_the_end_stays_at_the_final_rate(name):
    schedule = LearningRateSchedule(name, 0.4, 0.1, 0.0, 1e-3 / 0.4, 100)
    assert [schedule(step) for step in (100, 101, 1000)] == pytest.approx([1e-3] * 3)


@pytest.mark.parametrize("name", NAMES)
def test_equal_rates_stay_constant(name):
    schedule = LearningRateSchedule(name, 0.1, 0.25, 1.0, 1.0, 40)
    assert {round(schedule(step), 12) for step in range(41)} == {0.1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "step"}, "schedule.name is 'step', expected one of exponential, cosine, one_cycle"),
        ({"end_factor": 0.0}, "schedule.end_factor is 0.0, expected a factor of optim.lr above 0, up to 1"),
        ({"end_factor": 1.1}, "schedule.end_factor is 1.1, expected a factor"),
        ({"end_factor": math.nan}, "schedule.end_factor is nan"),
        ({"lr": math.nan}, "optim.lr is nan, expected a number above 0"),
        ({"lr": math.inf}, "optim.lr is inf"),
        ({"lr": 0.0}, "optim.lr is 0.0"),
        ({"start_factor": -0.1}, "schedule.start_factor is -0.1, expected a factor of optim.lr from 0 to 1"),
        ({"start_factor": 1.1}, "schedule.start_factor is 1.1"),
        ({"start_factor": math.nan}, "schedule.start_factor is nan"),
        ({"warmup": 1.0}, "schedule.warmup is 1.0, expected a share of the run from 0 to below 1"),
        ({"warmup": 6}, "schedule.warmup is 6, expected a share of the run"),
        ({"warmup": -0.1}, "schedule.warmup is -0.1"),
        ({"warmup": math.nan}, "schedule.warmup is nan"),
    ],
)
def test_what_makes_no_schedule(changes, message):
    with pytest.raises(UserError) as caught:
        wespeaker_recipe(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize("steps", [13, 39, 155, 1000])
def test_positions_and_rates_are_those_that_one_writes(steps):
    """A fifth of twenty epochs is four epochs, a tenth of 0.1 is 0.01: not a rounding error beside them."""
    schedule = LearningRateSchedule("one_cycle", 0.1, 0.2, 0.1, 0.001, 20 * steps)
    assert (schedule.warmup_steps, schedule.start_lr, schedule.end_lr) == (4 * steps, 0.01, 0.0001)


@pytest.mark.parametrize("epochs", [1, 2, 7, 50])
def test_another_length_is_the_same_curve(epochs):
    long, short = wespeaker_recipe(), wespeaker_recipe(total_steps=epochs * 100)
    for share in (0, 0.02, 0.04, 0.5, 1):
        assert short(round(share * epochs * 100)) == pytest.approx(long(round(share * 150 * STEPS)), rel=0.3, abs=1e-3)
