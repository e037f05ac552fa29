"""Signal-to-noise ratios, measured from what was added; levels and gain."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sounds import hiss, power_db

from svtoolkit.augmentation.gain import Gain
from svtoolkit.augmentation.level import SILENCE, level
from svtoolkit.augmentation.noise import add_noise


@given(
    st.integers(1, 2000),
    st.lists(st.tuples(st.floats(-20, 50), st.floats(-60, 0), st.floats(-60, 0)), min_size=1, max_size=4),
    st.integers(0, 99),
)
@settings(max_examples=100, deadline=None)
def test_the_ratio_is_reached_at_any_levels(samples, rows, seed):
    speech = np.stack([hiss(samples, seed, row, level=10 ** (db / 20)) for row, (_, db, _) in enumerate(rows)])
    noise = np.stack([hiss(samples, seed, row, 7, level=10 ** (db / 20)) for row, (_, _, db) in enumerate(rows)])
    snrs = torch.tensor([snr for snr, _, _ in rows])
    noisy = add_noise(torch.from_numpy(speech), torch.from_numpy(noise), snrs).numpy()
    assert noisy.dtype == np.float32
    for row, (snr, _, _) in enumerate(rows):
        added = noisy[row].astype(np.float64) - speech[row]
        assert power_db(speech[row]) - power_db(added) == pytest.approx(snr, abs=0.02)
        # What was added is the noise itself, but for its level.
        likeness = np.dot(added, noise[row]) / np.linalg.norm(added) / np.linalg.norm(noise[row].astype(np.float64))
        assert likeness == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("quiet", [0.0, 1e-30, 1e-12])
def test_nothing_is_added_to_silence_and_silence_is_not_raised(quiet):
    loud, silent = torch.from_numpy(hiss(500, 1)), torch.full((500,), quiet)
    speech, noise = torch.stack([loud, silent, silent]), torch.stack([silent, loud, silent])
    assert torch.equal(add_noise(speech, noise, torch.tensor([-20.0, -20.0, 0.0])), speech)


def test_what_is_barely_no_silence_is_mixed_finitely_at_the_widest_ratios():
    quiet = torch.full((1, 500), 2 * SILENCE)
    loud = torch.from_numpy(hiss(500, 1, level=100.0))[None]
    for speech, noise in ((quiet, loud), (loud, quiet)):
        for snr in (-100.0, 100.0):
            assert add_noise(speech, noise, torch.tensor([snr])).isfinite().all()


def test_speech_that_is_not_finite_stays_so_and_harms_no_other_row():
    speech = torch.from_numpy(np.stack([hiss(300, row) for row in range(3)]))
    noise = torch.from_numpy(np.stack([hiss(300, row, 9) for row in range(3)]))
    snrs = torch.tensor([3.0, 4.0, 5.0])
    clean = add_noise(speech, noise, snrs)
    speech[1, 7] = math.nan
    noisy = add_noise(speech, noise, snrs)
    assert not noisy[1].isfinite().all()
    assert torch.equal(noisy[[0, 2]], clean[[0, 2]])


def test_level_is_the_root_mean_square():
    waveforms = np.stack([hiss(32_240, row, level=10.0 ** (-3 * row)) for row in range(3)])
    expected = np.sqrt(np.mean(waveforms.astype(np.float64) ** 2, axis=1, keepdims=True))
    np.testing.assert_allclose(level(torch.from_numpy(waveforms)).numpy(), expected, rtol=1e-6)


def test_gain_is_in_decibels():
    waveforms = torch.from_numpy(np.stack([hiss(50, row) for row in range(3)]))
    changed = Gain([-6, 20]).apply(waveforms, {"gain_db": torch.tensor([0.0, 20.0, -6.0])})
    assert torch.equal(changed[0], waveforms[0])
    torch.testing.assert_close(changed[1], waveforms[1] * 10)
    torch.testing.assert_close(changed[2], waveforms[2] * 0.501187234)
