"""Times of blocks from a stopwatch: a clock by which every pass takes as long, and one that nobody may look at."""

from __future__ import annotations

from itertools import count

import pytest
import torch
from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.planner import choice
from svtoolkit.memory.planner.choice import BATCH
from svtoolkit.memory.planner.stopwatch import Stopwatch
from svtoolkit.memory.strategies.planned import Planned, plan_of
from svtoolkit.reversible import Chain

CPU = torch.device("cpu")
SETTINGS = {
    "gib_per_utterance": None, "times": 1.0, "inexact": False, "offload": False, "frames": 24, "num_bins": 16,
    "precision": "fp32",
}  # fmt: skip


def network() -> nn.Module:
    return nn.Sequential(Chain(*(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16)) for _ in range(3))))


@pytest.fixture
def even(monkeypatch):
    """Every pass takes a second."""
    seconds = count()
    monkeypatch.setattr(Stopwatch, "now", lambda self: float(next(seconds)))
    choice._KNOWN.clear()


@pytest.fixture
def stopped(monkeypatch):
    monkeypatch.setattr(Stopwatch, "now", lambda self: pytest.fail("it was measured"))
    choice._KNOWN.clear()


def test_every_way_takes_what_the_clock_says(even):
    chosen = plan_of(network(), **SETTINGS, clock="measured", device=CPU)
    assert set(chosen.seconds) == {BATCH / 4}  # of a step on 4 crops
    assert chosen.stored.seconds == pytest.approx(3 * 2 * BATCH / 4, rel=0.2)  # and what is around the blocks


def test_a_plan_follows_the_clock(even):
    """Where to evaluate a block again takes little longer than to store it, less is stored in about the same time."""
    settings = SETTINGS | {"times": 1.05}
    counted = plan_of(network(), **settings)
    measured = plan_of(network(), **settings, clock="measured", device=CPU)
    assert counted.seconds is None
    assert counted.outlay.plans == counted.stored.plans
    assert measured.outlay.peak < counted.outlay.peak
    assert 1.0 < measured.times < 1.05


def test_a_median_of_three_rounds_counts(monkeypatch):
    """The first is not one of them, and of the others one takes long."""
    calls, now = count(), 0.0

    def look(stopwatch: Stopwatch) -> float:
        nonlocal now
        call = next(calls)
        turn = call // 2 if call < 8 else (call - 8) // 4  # of a pass alone, then of evaluation and gradient
        now += (50.0, 1.0, 30.0, 1.0)[turn % 4] if call % 2 else 0.0
        return now

    monkeypatch.setattr(Stopwatch, "now", look)
    choice._KNOWN.clear()
    chosen = plan_of(network(), **SETTINGS, clock="measured", device=CPU)
    assert set(chosen.seconds) == {BATCH / 4}


def test_what_was_measured_before_is_not_measured_again(even, monkeypatch):
    chosen = plan_of(network(), **SETTINGS, clock="measured", device=CPU)
    monkeypatch.setattr(Stopwatch, "now", lambda self: pytest.fail("it was measured"))
    choice._KNOWN.clear()
    again = plan_of(network(), **SETTINGS, clock="measured", seconds=list(chosen.seconds))
    assert again == chosen


@pytest.mark.parametrize("change", [lambda seconds: seconds[:-1], lambda seconds: [*seconds, 1.0], lambda seconds: []])
def test_times_of_other_blocks_are_refused(even, change):
    seconds = plan_of(network(), **SETTINGS, clock="measured", device=CPU).seconds
    with pytest.raises(UserError, match=r"memory.seconds are those of other blocks .* leave it at null"):
        plan_of(network(), **SETTINGS, clock="measured", seconds=change(list(seconds)))


def test_a_network_is_put_under_its_plan_and_left_as_it_was():
    under, state = network(), torch.random.get_rng_state()
    before = {name: weight.clone() for name, weight in under.state_dict().items()}
    assert apply_strategy(under, "planned", clock="measured", times=2.0, frames=24, num_bins=16) == "planned"
    assert isinstance(under[0].planner, Planned)
    assert all(torch.equal(weight, before[name]) for name, weight in under.state_dict().items())
    assert all(weight.grad is None for weight in under.parameters())
    assert torch.equal(state, torch.random.get_rng_state())
