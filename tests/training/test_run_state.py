"""The full state of a run, saved and restored."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from tiny_runs import differences, tiny_config

from svtoolkit.config import SubcenterLossConfig
from svtoolkit.errors import UserError
from svtoolkit.runs.full_state import load_latest_state, save_state
from svtoolkit.training.experiment import Experiment
from svtoolkit.training.meters import Meter
from svtoolkit.training.run_state import check_state, collect_state, restore_state


@pytest.fixture
def make(speech, tmp_path):
    """An experiment that has done so many steps, with meters."""
    torch.set_num_threads(1)

    def experiment(steps=0, **changes):
        torch.manual_seed(11)
        made = Experiment(tiny_config(speech, tmp_path / "exp", validation__speakers=0, **changes))
        batches = made.batches()
        for _ in range(steps):
            made.step(batches)
        batches.close()
        return made

    return experiment


def draw():
    """The next numbers of every generator."""
    return [torch.rand(3).tolist(), random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn()]


@pytest.mark.parametrize("optim", ["sgd", "adamw", "sgd_8bit", "adamw_8bit"])
def test_a_state_comes_back_from_disk_bit_for_bit(make, tmp_path, optim):
    there = make(steps=3, optim=optim)
    meters = {"log": Meter(1.5, 2, 3, 4, 5.0, 6.0), "epoch": Meter(0.1, 1, 1, 1, 0.2, 0.3)}
    # A generator of normal numbers makes two at a time: the other one is waiting.
    random.gauss(0, 1)
    np.random.randn()
    state = collect_state(there.step, meters, finished_steps=3, seconds=1.25, fingerprint="abc")
    save_state(tmp_path / "states", 3, state, keep=1)
    expected = draw()
    random.seed(99)
    np.random.seed(99)
    torch.manual_seed(99)
    here, here_meters = make(optim=optim), {"log": Meter(), "epoch": Meter()}
    assert not torch.equal(here.step.head.weight, there.step.head.weight)
    loaded = load_latest_state(tmp_path / "states")
    assert loaded is not None
    assert differences(loaded[1], state) == []
    facts = restore_state(loaded[1], here.step, here_meters)
    assert facts == {"finished_steps": 3, "seconds": 1.25, "fingerprint": "abc"}
    assert here_meters == meters
    assert draw() == expected
    again = collect_state(here.step, here_meters, **facts)
    assert differences({**again, "random": None}, {**state, "random": None}) == []


def test_the_scale_of_fp16_comes_back(make):
    there, here = make(trainer__precision="fp16"), make(trainer__precision="fp16")
    there.step.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    there.step(batches := there.batches())
    batches.close()
    restore_state(collect_state(there.step, {}), here.step, {})
    assert here.step.scaler.state_dict() == there.step.scaler.state_dict()


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"model__base_width": 5}, "stem"), ({"data__speeds": [1.0]}, "weight")],
)
def test_a_state_of_another_network_or_head_is_refused(make, changes, what):
    state = collect_state(make(steps=1).step, {})
    other = make(**changes)
    with pytest.raises(UserError, match=rf"the saved state does not fit this run: .*{what}.*; use another exp_dir"):
        restore_state(state, other.step, {})


def test_a_state_of_another_optimizer_is_refused(make):
    there = make(steps=1)
    state = collect_state(there.step, {})
    state["optimizer"]["param_groups"][0]["params"].pop()
    with pytest.raises(UserError, match=r"the saved state does not fit this run: .*size of optimizer's group"):
        restore_state(state, there.step, {})
    del state["optimizer"]
    with pytest.raises(UserError, match="the saved state does not fit this run: 'optimizer'; use another exp_dir"):
        restore_state(state, there.step, {})


def test_a_head_with_several_centers_of_a_class_comes_back(make, tmp_path):
    several = SubcenterLossConfig(name="aam_subcenter", scale=16.0)
    there = make(steps=1, loss=several)
    facts = {"finished_steps": 1, "seconds": 1.25, "nonfinite_steps": 0, "fingerprint": "abc", "micro_batch": 8}
    save_state(tmp_path / "states", 1, collect_state(there.step, {}, **facts), keep=1)
    loaded = load_latest_state(tmp_path / "states", check_state)
    here = make(loss=several)
    restore_state(loaded[1], here.step, {})
    assert torch.equal(here.step.head.weight, there.step.head.weight)
