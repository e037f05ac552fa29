from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from svtoolkit.audio.pcm16 import encode_pcm16, quantise

RATE = 16000
EVERY_STEP = np.arange(-32768, 32768)


@given(st_numpy.arrays(np.int16, st.integers(1, 50)))
def test_every_sixteen_bit_sample_comes_back(steps):
    np.testing.assert_array_equal(quantise((steps / 32768).astype(np.float32)), steps)


@given(st_numpy.arrays(np.float32, st.integers(1, 50), elements=st.floats(-2, 2, width=32)))
def test_others_go_to_the_nearest_step(samples):
    exact = samples.astype(np.float64) * 32768
    assert (np.abs(quantise(samples) - np.clip(exact, -32768, 32767)) <= 0.5).all()


def test_what_is_louder_than_full_scale_is_clipped():
    loud = np.array([1.0, 3.0, -1.0, -3.0, 0.99999, 0.4999 / 32768, 0.5001 / 32768, 3e38, -3e38], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quantise(loud).tolist() == [32767, 32767, -32768, -32768, 32767, 0, 1, 32767, -32768]


@pytest.mark.parametrize("audio_format", ["flac", "wav"])
def test_a_file_holds_the_steps(audio_format):
    content = encode_pcm16((EVERY_STEP / 32768).astype(np.float32), RATE, audio_format)
    info = soundfile.info(io.BytesIO(content))
    assert (info.format, info.subtype, info.samplerate, info.channels) == (audio_format.upper(), "PCM_16", RATE, 1)
    samples, _ = soundfile.read(io.BytesIO(content), dtype="int16")
    np.testing.assert_array_equal(samples, EVERY_STEP)


def test_what_lies_between_steps_is_rounded():
    between = np.array([0.4, 0.6, -0.6, 32767.9, -32769.0, 65536.0]) / 32768
    samples, _ = soundfile.read(io.BytesIO(encode_pcm16(between.astype(np.float32), RATE, "flac")), dtype="int16")
    np.testing.assert_array_equal(samples, [0, 1, -1, 32767, -32768, 32767])
