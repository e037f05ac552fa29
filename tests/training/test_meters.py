"""Sums over crops."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from svtoolkit.training.meters import Meter


def test_averages_are_over_crops_whatever_the_batches():
    total = Meter()
    total.add(Meter(loss=6.0, correct=1, correct_no_margin=2, crops=2, waiting=1.0, seconds=4.0))
    total.add(Meter(loss=2.0, correct=3, correct_no_margin=3, crops=6, waiting=0.0, seconds=6.0))
    assert total.averages() == {
        "loss": pytest.approx(1.0),
        "accuracy": pytest.approx(0.5),
        "accuracy_no_margin": pytest.approx(0.625),
        "data_wait": pytest.approx(0.1),
    }


def test_an_empty_meter_has_averages_and_clearing_makes_one():
    meter = Meter(1.0, 2, 3, 4, 5.0, 6.0)
    meter.clear()
    assert asdict(meter) == asdict(Meter())
    assert meter.averages() == {"loss": 0.0, "accuracy": 0.0, "accuracy_no_margin": 0.0, "data_wait": 0.0}
