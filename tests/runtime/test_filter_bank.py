"""The filter bank in numpy against those of torch and of Kaldi."""

from __future__ import annotations

import math
from dataclasses import replace

import kaldi_native_fbank
import numpy as np
import pytest
import soundfile
import torch
from paths import SHARED

from svtoolkit.config import FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.runtime.filter_bank import BLOCK_FRAMES, NumpyFilterBank

torch.set_num_threads(1)
SPEECH = SHARED / "data" / "librispeech_mini" / "wav"
SETTINGS = [
    {},
    {"window": "povey", "high_freq": -400.0},
    {"window": "hanning", "num_bins": 40, "low_freq": 60.0},
    {"window": "rectangular", "preemphasis": 0.0, "frame_shift_ms": 12.5},
    {"int16_scale": False, "frame_length_ms": 32.0},
    {"sample_rate": 8000, "num_bins": 24},
    {"backend": "kaldi_3d", "window": "povey", "int16_scale": False},
]


def noise(seed: int, seconds: float) -> np.ndarray:
    """Noise that rises and falls."""
    times = np.arange(round(seconds * 16000)) / 16000
    loudness = 0.05 * (0.55 + 0.45 * np.sin(2 * np.pi * 3.5 * times))
    return (loudness * np.random.default_rng(seed).standard_normal(len(times))).astype(np.float32)


def assert_equal(found: np.ndarray, expected: np.ndarray) -> None:
    """Within 1e-4, but for filters 40 dB below the loudest of their frame, whose energy is in part rounding noise of a
    float32 transform: within 5e-3, and seldom beyond 1e-4."""
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    loud = expected > expected.max(axis=1, keepdims=True) - 4 * math.log(10)
    np.testing.assert_allclose(found[loud], expected[loud], atol=1e-4, rtol=0)
    np.testing.assert_allclose(found, expected, atol=5e-3, rtol=0)
    assert (np.abs(found - expected) > 1e-4).mean() < 1e-2


def torch_frames(config: FeaturesConfig, samples: np.ndarray) -> np.ndarray:
    return front_end_of(config).frames(torch.from_numpy(samples)[None])[0].numpy()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_frames_are_those_of_torch(settings):
    config = features_config(settings)
    samples = noise(1, 2.0)
    assert_equal(NumpyFilterBank(config)(samples), torch_frames(config, samples))


@pytest.mark.parametrize("window", ["hamming", "povey"])
def test_frames_are_those_of_kaldi(window):
    samples = noise(3, 1.5)
    config = FeaturesConfig(window=window)
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = config.sample_rate
    options.frame_opts.window_type = window
    options.frame_opts.dither = 0.0
    options.mel_opts.num_bins = config.num_bins
    computer = kaldi_native_fbank.OnlineFbank(options)
    computer.accept_waveform(config.sample_rate, samples * 32768.0)
    computer.input_finished()
    expected = np.stack([computer.get_frame(row) for row in range(computer.num_frames_ready)])
    assert_equal(NumpyFilterBank(config)(samples), expected)


def test_silence_is_at_the_floor_and_a_long_recording_goes_in_blocks():
    config = FeaturesConfig(num_bins=20)
    bank = NumpyFilterBank(config)
    silence = bank(np.zeros(4000, dtype=np.float32))
    assert np.allclose(silence, np.log(np.float32(1.1920929e-07)))
    samples = np.tile(noise(0, 1.0), 25)
    found = bank(samples)
    assert len(found) > 2 * BLOCK_FRAMES
    assert_equal(found, torch_frames(config, samples))


def test_speech_of_real_recordings():
    files = sorted(SPEECH.rglob("*.flac"))[:3] if SPEECH.is_dir() else []
    if not files:
        pytest.skip("the recordings are not beside the project")
    for config in (FeaturesConfig(), features_config({"backend": "kaldi_3d"})):
        for file in files:
            samples, _ = soundfile.read(file, dtype="float32")
            assert_equal(NumpyFilterBank(config)(samples), torch_frames(config, samples))


def test_other_features_are_refused_with_what_to_do():
    with pytest.raises(UserError, match=r"sb80, which are computed inside the graph alone; .*input=waveform"):
        NumpyFilterBank(features_config({"backend": "sb80"}))
    with pytest.raises(UserError, match=r"features.window is 'hann', expected"):
        NumpyFilterBank(replace(FeaturesConfig(), window="hann"))
