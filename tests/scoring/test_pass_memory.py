"""Bytes over seconds: fitted to passes, and turned round."""

from __future__ import annotations

import pytest

from svtoolkit.scoring.pass_memory import PassMemory, fit_pass, in_all, show_bytes, within


@pytest.mark.parametrize("squared", [0.0, 300.0])
def test_what_is_fitted_is_what_was_measured_and_the_seconds_are_those_of_the_bytes(squared: float) -> None:
    true = PassMemory(5e6, 1e5, 2e4, squared)
    found = fit_pass(true.held, {seconds: true.of(seconds) for seconds in (4.0, 120.0, 480.0)})
    for seconds in (1.0, 30.0, 120.0, 900.0):
        assert found.of(seconds) == pytest.approx(true.of(seconds))
        assert found.seconds_within(found.of(seconds)) == pytest.approx(seconds)
    assert found.seconds_within(5.05e6) == 0.0


def test_no_measured_pass_takes_more_than_is_predicted() -> None:
    for peaks in ({4.0: 50.0, 120.0: 300.0, 480.0: 9000.0}, {4.0: 50.0, 120.0: 900.0, 480.0: 1500.0}):
        found = fit_pass(10.0, peaks)
        assert all(found.of(seconds) >= peak * (1 - 1e-9) for seconds, peak in peaks.items())


def test_what_is_beside_the_tensors_is_counted_and_taken_off_again() -> None:
    assert within(in_all(3e9)) == pytest.approx(3e9)
    assert in_all(3e9) > 3.4e9
    assert within(1e6) == 0.0
    assert (show_bytes(1.55 * 2**30), show_bytes(2**29)) == ("1.6 GiB", "512 MiB")
