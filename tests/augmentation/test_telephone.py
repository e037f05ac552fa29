"""The line: its band, its rate, its codes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import signal
from sounds import RATE, hiss, power_db

from svtoolkit.augmentation.g711 import LAWS, decode, encode
from svtoolkit.augmentation.telephone import Telephone, band_filter
from svtoolkit.errors import UserError

RATES = [8000, 16_000, 24_000, 32_000, 48_000]


@pytest.mark.parametrize("rate", RATES)
def test_the_filter_passes_the_band_of_a_telephone_and_nothing_else(rate):
    taps = band_filter(rate)
    assert len(taps) % 2 == 1
    np.testing.assert_array_equal(taps, taps[::-1])
    frequencies = np.linspace(0, rate / 2, 20_000)
    gain = 20 * np.log10(np.maximum(np.abs(signal.freqz(taps, worN=frequencies, fs=rate)[1]), 1e-9))
    within = (frequencies >= 300) & (frequencies <= 3400)
    assert np.abs(gain[within]).max() < 0.02
    assert gain[(frequencies <= 100) | (frequencies >= 3600)].max() < -60


def tone(hertz: float, rate: int, seconds: float = 0.5, level: float = 0.3) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def through(samples: np.ndarray, law: str, rate: int) -> np.ndarray:
    return received(torch.from_numpy(samples)[None], law, rate)[0].numpy()


def received(waveforms: torch.Tensor, law: str, rate: int = RATE) -> torch.Tensor:
    laws = torch.full((len(waveforms),), LAWS.index(law))
    return Telephone(1.0, rate).apply(waveforms, {"law": laws})


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("law", ["mu", "a"])
def test_a_tone_in_the_band_comes_through_undelayed_with_the_noise_of_eight_bits(rate, law):
    for hertz in (353, 1013, 3301):  # no divisors of the rate, of which the codes' errors would be periodic
        sent = tone(hertz, rate)
        received = through(sent, law, rate)
        assert received.dtype == np.float32
        assert received.shape == sent.shape
        inner = slice(rate // 20, -rate // 20)
        error = received[inner] - sent[inner]
        assert 33 < power_db(sent[inner]) - power_db(error) < 45


@pytest.mark.parametrize("hertz", [60, 3700, 4500, 7500])
def test_a_tone_outside_the_band_does_not_come_through_nor_as_another(hertz):
    received = through(tone(hertz, RATE), "a", RATE)
    assert power_db(received[800:-800]) < power_db(tone(hertz, RATE)) - 50


@pytest.mark.parametrize("law", ["mu", "a"])
def test_the_line_is_filter_decimation_codes_and_filter(law):
    """Step by step in float64, but for the codes."""
    rate, samples = 16_000, 5001
    sent = hiss(samples, 3, level=0.15)
    taps = band_filter(rate)
    narrow = np.convolve(sent.astype(np.float64), taps, mode="full")[len(taps) // 2 :][:samples][::2]
    codes = encode(np.clip(np.round(narrow * 32768), -32768, 32767).astype(np.int16), law)
    stretched = np.zeros(samples)
    stretched[::2] = 2 * decode(codes, law) / 32768
    expected = np.convolve(stretched, taps, mode="full")[len(taps) // 2 :][:samples]
    # float32 rounds a few samples to the neighbouring step.
    error = through(sent, law, rate) - expected
    assert power_db(error) < power_db(expected) - 50
    assert np.median(np.abs(error)) < 2e-4


def test_what_is_too_loud_is_clipped():
    received = through(tone(1000, RATE, level=4.0), "mu", RATE)
    assert np.isfinite(received).all()
    assert 0.9 < np.abs(received).max() < 1.4


def test_silence_and_what_is_not_finite_stay_what_they_are():
    waveforms = torch.zeros(2, 900)
    waveforms[1, 5] = math.nan
    coded = received(waveforms, "mu")
    assert torch.equal(coded[0], torch.zeros(900))
    assert coded[1].isnan().any()


@pytest.mark.parametrize("samples", [1, 2, 3, 290])
def test_any_length_comes_through(samples):
    coded = received(torch.from_numpy(hiss(samples))[None], "a")
    assert coded.shape == (1, samples)
    assert coded.isfinite().all()


def test_every_row_takes_its_own_law():
    waveforms = torch.from_numpy(np.stack([hiss(900, row) for row in range(3)]))
    mixed = Telephone(1.0, RATE).apply(waveforms, {"law": torch.tensor([1, 0, 1])})
    assert torch.equal(mixed[[0, 2]], received(waveforms[[0, 2]], "a"))
    assert torch.equal(mixed[1:2], received(waveforms[1:2], "mu"))
    assert not torch.equal(mixed[:1], received(waveforms[:1], "mu"))


def test_rates():
    for rate in RATES:
        Telephone(0.1, rate)
    for rate in (4000, 11_025, 22_050, 44_100):
        with pytest.raises(UserError, match=rf"features\.sample_rate is {rate} Hz, expected a multiple of 8000 Hz"):
            Telephone(0.1, rate)
