"""The waveform as its own features."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from svtoolkit.composition import load
from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import WaveformConfig
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import features_config, front_end_of

WAVEFORMS = 0.3 + 0.1 * torch.randn(3, 700, generator=torch.Generator().manual_seed(0))


def test_every_sample_is_a_frame():
    front_end = front_end_of(WaveformConfig(frame_length_ms=20.0))
    given = WAVEFORMS.clone()
    features = front_end(given)
    assert torch.equal(features[:, :, 0], WAVEFORMS)
    features.zero_()
    assert torch.equal(given, WAVEFORMS), "the samples are copied"
    assert (front_end.num_bins, front_end.snip_edges, front_end.framewise) == (1, False, False)
    assert [front_end.num_frames(samples) for samples in (319, 320, 321)] == [0, 320, 321]
    assert [front_end.num_samples(frames) for frames in (1, 320, 321)] == [320, 320, 321]
    with pytest.raises(ValueError, match=r"shorter than one window of 320 samples \(20 ms at 16000 Hz\)"):
        front_end(WAVEFORMS[:, :319])


def test_each_has_mean_0_and_variance_1_where_that_is_asked_for():
    given = WAVEFORMS.clone()
    features = front_end_of(WaveformConfig(frame_length_ms=20.0, norm_signal=True))(given)[:, :, 0]
    for found, waveform in zip(features.double(), WAVEFORMS.double(), strict=True):
        expected = (waveform - waveform.mean()) / (waveform.var(correction=0) + 1e-7).sqrt()
        assert (found - expected).abs().max() < 1e-5
    assert torch.equal(given, WAVEFORMS)


def test_what_is_refused():
    for key, value in (("num_bins", 2), ("window", "povey"), ("remove_mean", True), ("int16_scale", True)):
        values = {**asdict(WaveformConfig()), key: value}
        with pytest.raises(UserError, match=f"features.{key} is .* but the front end waveform fixes it"):
            front_end_of(features_config(values))
    with pytest.raises(UserError, match="are 0 samples, expected 1 or more"):
        front_end_of(WaveformConfig(frame_length_ms=0.0))
    with pytest.raises(UserError, match="features has no option 'waveform'"):
        load("train", ["features=waveform", "data.train=data/train", "exp_dir=exp"])


@pytest.mark.parametrize("rate", [16_000, 8_000])
def test_a_crop_is_counted_in_frames_of_10_ms(rate):
    front_end = front_end_of(WaveformConfig(sample_rate=rate, frame_length_ms=20.0))
    assert front_end.crop_size(200) == (2 * rate, 2 * rate)
    assert front_end.crop_size(1) == (rate // 50, rate // 50), "the fewest that the network takes"


def test_other_front_ends_count_their_own_frames():
    assert front_end_of(FeaturesConfig()).crop_size(200) == (32_240, 200)
