"""A run that does not learn says so, once; one that does says nothing."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_runs import tiny_config

from svtoolkit.losses import MarginSchedule
from svtoolkit.optim import LearningRateSchedule
from svtoolkit.training.experiment import train
from svtoolkit.training.learning_check import LearningCheck
from svtoolkit.training.run_schedule import RunSchedule


@pytest.fixture
def weights() -> list[torch.Tensor]:
    return [torch.ones(4, 4), torch.ones(3)]


def check_of(weights, steps=10000, classes=1000) -> LearningCheck:
    rate = LearningRateSchedule(
        "exponential", lr=0.1, warmup=0.04, start_factor=0.0, end_factor=0.01, total_steps=steps
    )
    margin = MarginSchedule("constant", initial=0.0, final=0.2, start=0.0, end=0.0, total_steps=steps)
    return LearningCheck(RunSchedule(100, steps, rate, margin), classes, weights)


@pytest.mark.parametrize(
    ("step", "loss", "accuracy", "warns"),
    [
        (1400, math.log(1000) + 0.1, 0.001, True),
        (1399, math.log(1000) + 0.1, 0.001, False),  # warm-up 400, and a tenth of the run
        (1400, math.log(1000) - 0.1, 0.001, False),
        (1400, math.log(1000) + 5.0, 0.011, False),  # a margin makes the loss of what is learnt high
    ],
)
def test_a_loss_of_guessing(weights, caplog, step, loss, accuracy, warns):
    check_of(weights).look(step, {"loss": loss, "accuracy_no_margin": accuracy})
    assert ("the run does not learn" in caplog.text) == warns


def test_it_is_said_once_and_of_what(weights, caplog):
    check = check_of(weights)
    for step in (5000, 6000):
        check.look(step, {"loss": 9.0, "accuracy_no_margin": 0.0})
    assert len(caplog.messages) == 1
    assert caplog.messages[0] == (
        "step 5000: the run does not learn: the loss of the epoch is 9.00, that of guessing among 1000 classes 6.91, "
        "and 0.00 % of its crops are told right; lower optim.lr=0.1, lengthen schedule.warmup, or check utt2spk and "
        "the audio with `svt validate`"
    )


@pytest.mark.parametrize(("factor", "warns"), [(29.0, False), (31.0, True), (math.inf, True), (math.nan, True)])
def test_weights_that_explode(weights, caplog, factor, warns):
    check = check_of(weights)
    for tensor in weights:
        tensor *= factor
    check.look(100, {"loss": 1.0, "accuracy_no_margin": 0.9})
    assert ("times as large as when the run began: optim.lr=0.1 is too high" in caplog.text) == warns


@pytest.mark.parametrize(("rate", "warnings"), [(1e3, 1), (0.05, 0)])
def test_a_run(speech, tmp_path, caplog, rate, warnings):
    config = tiny_config(speech, tmp_path / "exp", optim__lr=rate, validation__speakers=0, data__speeds=[1.0])
    assert train(config) is None
    assert sum("too high" in message or "does not learn" in message for message in caplog.messages) == warnings
