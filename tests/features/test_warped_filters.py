"""Filters of other vocal tracts: against Kaldi's by kaldi-native-fbank, against its formula, and crop by crop."""

from __future__ import annotations

import copy
import math

import kaldi_native_fbank
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import Kaldi3DConfig, Nemo80Config, WaveformConfig
from svtoolkit.errors import UserError
from svtoolkit.features import FilterBankOptions, build_front_end
from svtoolkit.features.kaldi_filters import mel_filters, warp_frequencies
from svtoolkit.models.front_ends import front_end_of

WARPS = (1.0, 0.9, 1.1)
SAMPLES = 4000

torch.set_num_threads(1)


def kaldi_filters(warp: float, *, sample_rate=16000, num_bins=80, low_freq=20.0, high_freq=0.0) -> np.ndarray:
    """(points, bins) of kaldi-native-fbank, without the point at half the sample rate, which it leaves out."""
    mel, frame = kaldi_native_fbank.MelBanksOptions(), kaldi_native_fbank.FrameExtractionOptions()
    frame.samp_freq, frame.frame_length_ms = sample_rate, 25.0
    mel.num_bins, mel.low_freq, mel.high_freq = num_bins, low_freq, high_freq
    mel.vtln_low, mel.vtln_high = 100.0, -500.0
    return np.array(kaldi_native_fbank.MelBanks(mel, frame, warp).get_matrix()).T


@pytest.mark.parametrize("warp", [0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_bins": 40}, {"sample_rate": 8000, "num_bins": 40}, {"low_freq": 60.0, "high_freq": -200.0}],
    ids=str,
)
def test_filters_are_kaldis(warp, options):
    ours, kaldi = mel_filters(FilterBankOptions(warp=warp, **options)), kaldi_filters(warp, **options)
    rows = min(len(ours), len(kaldi))
    # Kaldi's mel scale is in float32: an edge is off by 1e-4 mel, of filters that are 20 mel wide.
    np.testing.assert_allclose(ours[:rows], kaldi[:rows], rtol=0, atol=1e-4)
    assert not ours[rows:].any()
    assert not kaldi[rows:].any()


def vtln_warp_frequency(f: float, warp: float, *, nyquist: float, bottom: float, top: float) -> float:
    """VtlnWarpFreq of Kaldi's feat/mel-computations.cc, branch by branch."""
    low, high = 100.0 * max(1.0, warp), (nyquist - 500.0) * min(1.0, warp)
    if f < low:
        return bottom + (low / warp - bottom) / (low - bottom) * (f - bottom)
    if f < high:
        return f / warp
    return top + (top - high / warp) / (top - high) * (f - top)


@given(
    warp=st.floats(0.5, 2.0),
    share=st.floats(0.0, 1.0),
    rate=st.sampled_from([8000, 16000]),
    bottom=st.sampled_from([0.0, 20.0, 80.0]),
    below=st.sampled_from([0.0, 100.0, 400.0]),
)
@settings(max_examples=200, deadline=None)
def test_the_warp_is_that_of_the_formula(warp, share, rate, bottom, below):
    options = FilterBankOptions(sample_rate=rate, num_bins=10, low_freq=bottom, high_freq=-below)
    object.__setattr__(options, "warp", warp)  # filters are as wide as they come here
    top = rate / 2 - below
    hertz = bottom + share * (top - bottom)
    found = float(warp_frequencies(np.array(hertz), options))
    expected = vtln_warp_frequency(hertz, warp, nyquist=rate / 2, bottom=bottom, top=top)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert bottom <= found <= top


@pytest.mark.parametrize("warp", [0.9, 1.1])
def test_formants_look_warp_times_as_high(warp):
    centres = np.linspace(*1127 * np.log1p(np.array([20, 8000]) / 700), 82)[1:-1]
    front_end = build_front_end(remove_mean=False, warps=[warp])
    for hertz in (400.0, 1200.0, 3000.0):
        tone = torch.sin(2 * math.pi * hertz * torch.arange(SAMPLES) / 16000)[None]
        bin_ = int(front_end.frames(tone, torch.tensor([0]))[0].mean(dim=0).argmax())
        assert abs(centres[bin_] - 1127 * math.log1p(hertz * warp / 700)) < 20  # a bin is 35 mel wide


def waveforms(count: int) -> torch.Tensor:
    return 0.1 * torch.randn(count, SAMPLES, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("backend", [FeaturesConfig(), Kaldi3DConfig()], ids=["torch", "kaldi_3d"])
def test_each_crop_of_a_batch_has_its_own_filters(backend):
    front_end, given = front_end_of(backend, WARPS), waveforms(7)
    warps = torch.tensor([2, 0, 1, 1, 2, 0, 0])
    found = front_end.features_of(given, warps)
    options = front_end.options
    window = (0.54 - 0.46 * np.cos(np.linspace(0, 2 * np.pi, 400))) if backend.window == "hamming" else None
    window = (0.5 - 0.5 * np.cos(np.linspace(0, 2 * np.pi, 400))) ** 0.85 if window is None else window
    for crop, number, features in zip(given.double().numpy(), warps.tolist(), found.numpy(), strict=True):
        frames = np.lib.stride_tricks.sliding_window_view(crop * (32768 if options.int16_scale else 1), 400)[::160]
        frames = frames - frames.mean(axis=1, keepdims=True)
        frames = frames - 0.97 * np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
        power = np.abs(np.fft.rfft(frames * window, 512)) ** 2
        matrix = kaldi_filters(WARPS[number])
        expected = np.log(np.maximum(power[:, : len(matrix)] @ matrix, 1.1920929e-07))
        np.testing.assert_allclose(features, expected - expected.mean(axis=0), rtol=0, atol=2e-3)


def test_of_one_tract_alone_and_of_none():
    front_end, given = front_end_of(FeaturesConfig(), WARPS), waveforms(3)
    plain = front_end_of(FeaturesConfig())
    assert len(plain.warped) == 0
    assert torch.equal(front_end(given), plain(given)), "the model's own filters stay"
    assert torch.equal(front_end.features_of(given, torch.tensor([0, 0, 0])), plain(given))
    warped = front_end.features_of(given, torch.tensor([1, 1, 1]))
    assert not torch.allclose(warped, plain(given), atol=0.1)
    moved = copy.deepcopy(front_end).to(torch.bfloat16)
    assert torch.equal(moved.features_of(given, torch.tensor([1, 1, 1])), warped), "tables stay float32"


@pytest.mark.parametrize("config", [WaveformConfig(), Nemo80Config()], ids=["waveform", "nemo80"])
def test_front_ends_without_kaldis_filters_have_no_warps(config):
    with pytest.raises(
        UserError, match=r"data\.warps is \[1\.0, 0\.9\], which moves the filters of Kaldi's .*; train with "
    ):
        front_end_of(config, [1.0, 0.9])


@pytest.mark.parametrize(
    ("config", "warps", "message"),
    [
        (
            FeaturesConfig(low_freq=100.0),
            [0.9],
            r"bends at 100 and 7500 Hz, .* to 8000\.0 Hz has to contain; train",
        ),
        (FeaturesConfig(high_freq=7000.0), [1.0, 0.9], r"data\.warps=\[1\.0\], .* features\.high_freq"),
        (FeaturesConfig(num_bins=120), [2.0], r"features\.num_bins is 120, but filter \d+ .* is so narrow"),
        (FeaturesConfig(sample_rate=1400, num_bins=8, frame_length_ms=50.0), [2.0], r"a warp of 2\.0 leaves nothing"),
    ],
)
def test_warps_that_make_no_filters_are_refused(config, warps, message):
    with pytest.raises(UserError, match=message):
        front_end_of(config, warps)
