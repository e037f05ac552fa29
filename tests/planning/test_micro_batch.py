"""The micro-batch that is predicted to fit: the largest divisor of the share whose predicted peak leaves room."""

from __future__ import annotations

import pytest
from predictions import predict_once, report_once
from tiny_runs import tiny_config

from svtoolkit.errors import UserError
from svtoolkit.planning import micro_batch
from svtoolkit.planning.micro_batch import NON_TENSOR_BYTES, predict_micro_batch, step_of
from svtoolkit.planning.unpredictable import UnpredictableError


@pytest.fixture(autouse=True)
def each_step_is_predicted_once(monkeypatch):
    monkeypatch.setattr("svtoolkit.planning.micro_batch.predict_memory", predict_once)


def peak(config, crops: int) -> int:
    return report_once(step_of(config, crops, 18)).peak_bytes


@pytest.mark.parametrize("share", [9, 7])  # more crops than are predicted, and fewer
def test_it_is_the_largest_divisor_that_fits(tmp_path, share):
    config = tiny_config(tmp_path, tmp_path, data__crop_frames=200)
    divisors = [crops for crops in range(1, share + 1) if share % crops == 0]
    for fitting, beyond in zip(divisors, [*divisors[1:], None], strict=True):
        limit = NON_TENSOR_BYTES + round(1.03 * peak(config, fitting))  # of a small network the line is 2 % off
        assert predict_micro_batch(config, share, 18, limit) == fitting
        assert beyond is None or peak(config, beyond) + NON_TENSOR_BYTES > limit


def test_one_where_nothing_fits_or_nothing_can_be_divided(tmp_path):
    config = tiny_config(tmp_path, tmp_path)
    assert predict_micro_batch(config, 8, 18, 0) == 1
    assert predict_micro_batch(config, 1, 18, 0) == 1


def test_what_cannot_be_predicted_asks_for_a_number(tmp_path, monkeypatch):
    def refuse(config):
        raise UnpredictableError("optim=lbfgs", "its update depends on values")

    monkeypatch.setattr(micro_batch, "predict_memory", refuse)
    with pytest.raises(UserError) as error:
        predict_micro_batch(tiny_config(tmp_path, tmp_path), 8, 18, 2**34)
    assert str(error.value) == (
        "trainer.micro_batch is null, but what the GPU holds with optim=lbfgs cannot be predicted; set "
        "trainer.micro_batch=8, or a smaller divisor of it"
    )


def test_a_peak_grows_in_proportion(tmp_path):
    config = tiny_config(tmp_path, tmp_path, "adamw", data__crop_frames=200)
    assert predict_once(step_of(config, 8, 18)).peak_of(24) == pytest.approx(peak(config, 24), rel=0.01)
