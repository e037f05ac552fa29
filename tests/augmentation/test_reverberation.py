"""Reverberation: how a response is cut, and speech in it against direct convolution in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sounds import RATE, decaying, hiss, power_db

from svtoolkit.augmentation.impulse_responses import DECAYED, LONGEST_RESPONSE, find_response, normalise_response
from svtoolkit.augmentation.reverberation import reverberate


def trim_response(recording: np.ndarray, sample_rate: int) -> np.ndarray:
    return normalise_response(recording[find_response(recording, sample_rate)])


def test_a_response_begins_with_its_direct_path_at_energy_one():
    response = decaying(6000, delay=431) * 0.01
    trimmed = trim_response(response, RATE)
    assert trimmed.dtype == np.float32
    assert np.abs(trimmed).argmax() == 0
    assert np.sum(trimmed.astype(np.float64) ** 2) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(trimmed / trimmed[0], response[431 : 431 + len(trimmed)] / response[431], atol=1e-6)


def test_the_direct_path_may_be_negative():
    response = decaying(1000, delay=20)
    np.testing.assert_array_equal(trim_response(-response, RATE), -trim_response(response, RATE))


@pytest.mark.parametrize("rt60", [0.1, 0.3, 0.6])
def test_a_response_ends_where_its_energy_has_decayed(rt60):
    response = decaying(12_000, rt60=rt60).astype(np.float64)
    taps = len(trim_response(response, RATE))
    energy = response**2
    assert np.sum(energy[taps:]) < DECAYED * np.sum(energy) <= np.sum(energy[taps - 1 :])
    assert 0.3 * rt60 < taps / RATE < 1.1 * rt60


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
def test_a_response_is_no_longer_than_the_ceiling(rate):
    endless = hiss(3 * rate)
    endless[50] = 3.0
    assert len(trim_response(endless, rate)) == LONGEST_RESPONSE * rate


def test_a_response_may_be_a_single_tap():
    np.testing.assert_array_equal(trim_response(np.array([0.0, 0.0, -0.25, 0.0]), RATE), [-1.0])


@pytest.mark.parametrize("response", [np.zeros(100), np.zeros(0), np.array([0.5, np.nan]), np.array([np.inf, 0.1])])
def test_a_response_of_nothing_is_refused(response):
    with pytest.raises(ValueError, match="empty, silent or not finite"):
        trim_response(response, RATE)


@given(st.integers(1, 600), st.integers(1, 900), st.integers(1, 3), st.floats(-60, 10), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_reverberation_is_direct_convolution_at_the_power_of_the_speech(samples, taps, rows, db, seed):
    speech = np.stack([hiss(samples, seed, row, level=10 ** (db / 20)) for row in range(rows)])
    responses = np.zeros((rows, taps), dtype=np.float32)
    for row in range(rows):
        trimmed = trim_response(decaying(taps, seed, row), RATE)
        responses[row, : len(trimmed)] = trimmed
    reverberant = reverberate(torch.from_numpy(speech), torch.from_numpy(responses)).numpy()
    assert reverberant.dtype == np.float32
    for row in range(rows):
        expected = np.convolve(speech[row].astype(np.float64), responses[row])[:samples]
        expected *= np.sqrt(np.sum(speech[row].astype(np.float64) ** 2) / np.sum(expected**2))
        np.testing.assert_allclose(reverberant[row], expected, atol=2e-5 * np.abs(expected).max())
        assert power_db(reverberant[row]) == pytest.approx(power_db(speech[row]), abs=1e-3)


def test_the_direct_path_keeps_its_time():
    click = torch.zeros(1, 4000)
    click[0, 1234] = 0.5
    response = torch.from_numpy(trim_response(decaying(3000, delay=700), RATE))[None]
    reverberant = reverberate(click, response)
    assert reverberant[0].abs().argmax() == 1234
    assert reverberant[0, :1234].abs().max() < 1e-6


def test_silence_stays_silence():
    response = torch.from_numpy(trim_response(decaying(300), RATE))[None]
    assert torch.equal(reverberate(torch.zeros(1, 500), response), torch.zeros(1, 500))
    assert reverberate(torch.full((1, 500), 1e-25), response).isfinite().all()
