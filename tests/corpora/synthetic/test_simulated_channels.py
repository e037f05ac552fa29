from __future__ import annotations

import random

import numpy as np
import pytest

from svtoolkit.corpora.synthetic.simulated_channels import CHANNELS, filter_band, reverberate, transmit


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_channel_keeps_length_and_lets_the_speech_band_through(channel: str) -> None:
    rate, time = 16000, np.arange(20001) / 16000
    speech = (0.1 * np.sin(2 * np.pi * 1000 * time) * (1 + np.sin(2 * np.pi * 4 * time))).astype(np.float32)
    received = transmit(speech, rate, channel, random.Random(1))
    assert (received.shape, received.dtype) == (speech.shape, np.float32)
    assert np.corrcoef(received, speech)[0, 1] > (0.98 if channel == "wide" else 0.7)
    assert -28.1 < 20 * np.log10(np.sqrt(np.mean(received.astype(float) ** 2))) < -19.9
    assert not np.array_equal(received, transmit(speech, rate, channel, random.Random(2)))
    np.testing.assert_array_equal(received, transmit(speech, rate, channel, random.Random(1)))


def test_a_channel_does_not_clip_peaky_speech() -> None:
    speech = np.full(16000, 1e-4, dtype=np.float32)
    speech[8000] = 1.0
    assert np.abs(transmit(speech, 16000, "wide", random.Random(0))).max() <= 0.9001


@pytest.mark.parametrize(
    ("hertz", "decibels"), [(100, -38.17), (300, -3.01), (1000, 0.0), (3400, -3.01), (6800, -24.1)]
)
def test_the_band_has_the_magnitude_of_butterworth_filters(hertz: float, decibels: float) -> None:
    time = np.arange(32000) / 16000
    tone = np.sin(2 * np.pi * hertz * time)
    passed = filter_band(tone, 16000, (300.0, 3400.0), 0.0)[8000:24000]
    assert 20 * np.log10(np.std(passed) / np.std(tone)) == pytest.approx(decibels, abs=0.1)


def test_the_tilt_is_in_decibels_an_octave() -> None:
    time = np.arange(32000) / 16000
    levels = [
        np.std(filter_band(np.sin(2 * np.pi * hertz * time), 16000, (1.0, 1e5), 2.0)[8000:24000])
        for hertz in (1000, 4000)
    ]
    assert 20 * np.log10(levels[1] / levels[0]) == pytest.approx(4.0, abs=0.05)


def test_a_room_keeps_the_direct_sound_and_decays_by_60_decibels() -> None:
    impulse = np.zeros(8000)
    impulse[0] = 1.0
    response = reverberate(impulse, 16000, np.random.default_rng(0), seconds=0.25, ratio_db=6.0)
    assert response[0] == pytest.approx(1.0)
    assert 10 * np.log10(np.sum(response[1:] ** 2)) == pytest.approx(-6.0, abs=0.1)
    early, late = np.mean(response[1:401] ** 2), np.mean(response[3600:4000] ** 2)
    assert 10 * np.log10(late / early) == pytest.approx(-54.0, abs=2.0)
    np.testing.assert_allclose(response[4000:], 0, atol=1e-12)
