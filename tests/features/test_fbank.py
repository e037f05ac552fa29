"""The filter bank against kaldi-native-fbank and against its formula."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys

import kaldi_native_fbank
import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from svtoolkit.features import FilterBank, FrontEnd, build_front_end, dither_noise
from svtoolkit.features import fbank as fbank_module

SPEECH = ROOT.parent / "shared" / "data" / "librispeech_mini" / "wav"
FLOOR = math.log(1.1920929e-07)

torch.set_num_threads(1)


def kaldi_fbank(
    samples: np.ndarray,
    *,
    sample_rate: int = 16000,
    num_bins: int = 80,
    frame_length_ms: float = 25.0,
    frame_shift_ms: float = 10.0,
    window: str = "hamming",
    preemphasis: float = 0.97,
    low_freq: float = 20.0,
    high_freq: float = 0.0,
    int16_scale: bool = True,
    dither: float = 0.0,
) -> np.ndarray:
    """(frames, bins) of kaldi-native-fbank; takes the arguments of build_front_end."""
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = sample_rate
    options.frame_opts.frame_length_ms = frame_length_ms
    options.frame_opts.frame_shift_ms = frame_shift_ms
    options.frame_opts.window_type = window
    options.frame_opts.preemph_coeff = preemphasis
    options.frame_opts.dither = dither
    options.mel_opts.num_bins = num_bins
    options.mel_opts.low_freq = low_freq
    options.mel_opts.high_freq = high_freq
    computer = kaldi_native_fbank.OnlineFbank(options)
    computer.accept_waveform(sample_rate, np.float32(samples * (32768.0 if int16_scale else 1.0)))
    computer.input_finished()
    frames = [computer.get_frame(index) for index in range(computer.num_frames_ready)]
    return np.stack(frames) if frames else np.zeros((0, num_bins), dtype=np.float32)


def features_of(samples: np.ndarray, **options) -> np.ndarray:
    front_end = build_front_end(remove_mean=False, **options)
    return front_end(torch.from_numpy(np.float32(samples))[None])[0].numpy()


def assert_equal_to_kaldi(samples: np.ndarray, **options) -> None:
    """Within 1e-3, but for filters 70 dB below the loudest of their frame.

    There the energy is rounding noise of two float32 transforms: it must only be as faint in both.
    """
    ours, kaldi = features_of(samples, **options), kaldi_fbank(samples, **options)
    assert ours.shape == kaldi.shape
    loudest = kaldi.max(axis=1, keepdims=True)
    audible = kaldi > loudest - 7 * math.log(10)
    np.testing.assert_allclose(ours[audible], kaldi[audible], rtol=0, atol=1e-3)
    assert np.all((ours < loudest - 6.9 * math.log(10)) | audible)


def noise(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.1, samples).clip(-1.0, 1.0)


def tone(samples: int, hertz: float, sample_rate: int) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(samples) / sample_rate)


@pytest.mark.parametrize("window", ["hamming", "povey", "hanning", "rectangular"])
@pytest.mark.parametrize("int16_scale", [True, False])
@pytest.mark.parametrize(("sample_rate", "num_bins"), [(16000, 80), (16000, 40), (8000, 80), (8000, 40)])
def test_noise_and_tones_as_kaldi(window, int16_scale, sample_rate, num_bins):
    options = {"window": window, "int16_scale": int16_scale, "sample_rate": sample_rate, "num_bins": num_bins}
    assert_equal_to_kaldi(noise(9000), **options)
    assert_equal_to_kaldi(0.1 + 0.3 * noise(9000), **options)  # an offset that DC removal takes away
    for hertz in (55.0, 440.0, 3300.0):
        assert_equal_to_kaldi(tone(4000, hertz, sample_rate), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"high_freq": -400.0},
        {"high_freq": 7600.0, "low_freq": 60.0},
        {"low_freq": 0.0},
        {"preemphasis": 0.0},
        {"preemphasis": 1.0},
        {"frame_length_ms": 20.0, "frame_shift_ms": 12.5, "num_bins": 60},
        {"frame_length_ms": 32.0, "frame_shift_ms": 8.0},
        {"sample_rate": 11025, "num_bins": 40},
        {"sample_rate": 22050},
    ],
    ids=str,
)
def test_other_options_as_kaldi(options):
    assert_equal_to_kaldi(noise(8000), **options)


@settings(max_examples=40, deadline=None)
@given(
    extra=st.integers(0, 3000),
    seed=st.integers(0, 2**31),
    level=st.sampled_from([1e-4, 1e-2, 0.3]),
    window=st.sampled_from(["hamming", "povey"]),
    sample_rate=st.sampled_from([8000, 16000]),
)
def test_any_length_as_kaldi(extra, seed, level, window, sample_rate):
    samples = level * np.random.default_rng(seed).normal(size=sample_rate // 40 + extra)
    assert_equal_to_kaldi(samples, window=window, sample_rate=sample_rate)


@pytest.mark.parametrize("window", ["hamming", "povey"])
@pytest.mark.parametrize("int16_scale", [True, False])
def test_speech_as_kaldi(window, int16_scale):
    files = sorted(SPEECH.rglob("*.flac"))[:3]
    if not files:
        pytest.skip(f"no speech in {SPEECH}")
    for file in files:
        samples, sample_rate = soundfile.read(file, frames=48000, dtype="float32")
        assert_equal_to_kaldi(samples, window=window, int16_scale=int16_scale, sample_rate=sample_rate)


def test_one_frame_by_the_formula():
    """Every step in float64, with loops and a Fourier sum instead of arrays and an FFT."""
    samples = noise(400, seed=3)
    frame = samples * 32768
    frame = frame - sum(frame) / 400
    frame = np.array([frame[max(t, 0)] - 0.97 * frame[max(t - 1, 0)] for t in range(400)])
    frame = frame * [0.54 - 0.46 * math.cos(2 * math.pi * t / 399) for t in range(400)]
    turns = np.outer(np.arange(257), np.arange(400)) / 512
    power = np.abs(np.exp(-2j * np.pi * turns) @ frame) ** 2

    def mel(hertz: float) -> float:
        return 1127 * math.log(1 + hertz / 700)

    width = (mel(8000) - mel(20)) / 81
    expected = []
    for index in range(80):
        centre = mel(20) + (index + 1) * width
        weights = [max(0.0, 1 - abs(mel(point * 31.25) - centre) / width) for point in range(257)]
        expected.append(math.log(sum(weights * power)))
    np.testing.assert_allclose(features_of(samples), [expected], rtol=0, atol=2e-4)


def test_neighbouring_filters_add_up_to_one():
    """Between the first and the last centre the triangles of neighbours add up to one (no normalisation by area)."""
    front_end = build_front_end()
    filters = front_end.filter_bank.filters.double().numpy()
    inner = slice(2, 240)  # 62.5 Hz to 7500 Hz
    np.testing.assert_allclose(filters[inner].sum(axis=1), 1.0, atol=1e-6)
    assert filters[-1].max() == 0.0  # the Nyquist point, which Kaldi leaves out, closes the last filter


def test_silence_is_the_floor_of_kaldi():
    silence = np.zeros(4000)
    ours = features_of(silence)
    np.testing.assert_array_equal(ours, kaldi_fbank(silence))
    np.testing.assert_allclose(ours, FLOOR, rtol=1e-6)


@pytest.mark.parametrize("remove_mean", [True, False])
def test_gradient_of_silence_is_finite(remove_mean):
    waveforms = torch.zeros(2, 2000, requires_grad=True)
    build_front_end(remove_mean=remove_mean)(waveforms).square().sum().backward()
    assert waveforms.grad is not None
    assert torch.isfinite(waveforms.grad).all()


def test_gradient_reaches_the_waveform():
    """Against a central difference along a random direction."""
    front_end = build_front_end(num_bins=23)
    rng = torch.Generator().manual_seed(1)
    waveforms = (torch.randn(2, 1200, generator=rng) * 0.1).requires_grad_()
    direction = torch.randn(2, 1200, generator=rng) * 0.1
    weights = torch.randn(2, 6, 23, generator=rng)
    (front_end(waveforms) * weights).sum().backward()
    assert waveforms.grad is not None
    slope = (waveforms.grad * direction).sum().item()
    step = 1e-3
    with torch.no_grad():
        ahead, behind = (front_end(waveforms + sign * step * direction) for sign in (1, -1))
    measured = ((ahead - behind).double() * weights).sum().item() / (2 * step)
    assert slope == pytest.approx(measured, rel=0.01)


def test_a_batch_is_its_utterances():
    waveforms = torch.from_numpy(np.float32(noise(5 * 7000).reshape(5, 7000)))
    front_end = build_front_end()
    alone = torch.cat([front_end(waveform[None]) for waveform in waveforms])
    torch.testing.assert_close(front_end(waveforms), alone, rtol=0, atol=1e-4)


@pytest.mark.parametrize("limit", [1, 7, 42, 100])
def test_chunks_change_nothing(monkeypatch, limit):
    waveforms = torch.from_numpy(np.float32(noise(5 * 7000).reshape(5, 7000)))
    front_end = build_front_end()
    whole = front_end(waveforms)
    monkeypatch.setattr(fbank_module, "CPU_CHUNK_FRAMES_PER_THREAD", limit)
    torch.testing.assert_close(front_end(waveforms), whole, rtol=0, atol=1e-4)


def test_mean_removal():
    samples = noise(16000)
    raw = features_of(samples).astype(np.float64)
    removed = build_front_end()(torch.from_numpy(np.float32(samples))[None])[0].numpy()
    np.testing.assert_allclose(removed, raw - raw.mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("remove_mean", [True, False])
def test_features_are_made_in_two_steps_of_which_the_first_can_be_stored(remove_mean):
    front_end = build_front_end(num_bins=40, remove_mean=remove_mean)
    waveforms = torch.from_numpy(np.stack([noise(9000, seed) for seed in range(3)]))
    frames = front_end.frames(waveforms)
    assert torch.equal(frames, build_front_end(num_bins=40, remove_mean=False)(waveforms))
    assert torch.equal(front_end.features_of(frames.clone()), front_end(waveforms))
    assert torch.equal(front_end.features_of(waveforms), front_end(waveforms))
    assert front_end.framewise
    for first, count in ((0, 1), (7, 20), (53, 1)):
        samples = waveforms[:, 160 * first : 160 * first + front_end.num_samples(count)]
        torch.testing.assert_close(front_end.frames(samples), frames[:, first : first + count], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="waveforms of 399 samples are shorter than one window of 400"):
        front_end.frames(waveforms[:, :399])


def test_forward_is_deterministic_in_training_and_evaluation():
    waveforms = torch.from_numpy(np.float32(noise(8000)))[None]
    front_end = build_front_end()
    training = [front_end.train()(waveforms) for _ in range(2)]
    assert torch.equal(*training)
    assert torch.equal(training[0], front_end.eval()(waveforms))
    assert torch.equal(training[0], build_front_end()(waveforms))


def test_float32_inside_autocast_and_inside_a_cast_model():
    waveforms = torch.from_numpy(np.float32(noise(8000)))[None]
    front_end = build_front_end()
    expected = front_end(waveforms)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = front_end(waveforms)
    assert torch.equal(inside, expected)
    for cast in (torch.nn.Module.bfloat16, torch.nn.Module.half, torch.nn.Module.double):
        model = torch.nn.Sequential(build_front_end(), torch.nn.Linear(80, 2))
        assert torch.equal(cast(model)[0](waveforms), expected)
    assert torch.equal(front_end(waveforms.double()), expected)


def test_tables_survive_meta_devices_copies_and_pickles():
    waveforms = torch.from_numpy(np.float32(noise(2000)))[None]
    front_end = build_front_end()
    expected = front_end(waveforms)
    assert torch.equal(copy.deepcopy(front_end)(waveforms), expected)
    assert torch.equal(pickle.loads(pickle.dumps(front_end))(waveforms), expected)
    assert torch.equal(front_end.to("meta").to_empty(device="cpu")(waveforms), expected)


def test_nothing_to_store_or_train():
    front_end = build_front_end()
    assert front_end.state_dict() == {}
    assert list(front_end.parameters()) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_as_cpu():
    waveforms = torch.from_numpy(np.float32(noise(70 * 32240).reshape(70, 32240)))
    on_device = build_front_end().to("cuda")(waveforms.to("cuda"))
    torch.testing.assert_close(on_device.cpu(), build_front_end()(waveforms), rtol=0, atol=1e-3)


def test_sizes():
    front_end = build_front_end()
    assert isinstance(front_end, FrontEnd)
    assert isinstance(front_end.filter_bank, FilterBank)
    assert (front_end.sample_rate, front_end.num_bins) == (16000, 80)
    assert front_end.num_samples(200) == 32240
    assert front_end.num_frames(32240) == 200
    assert front_end(torch.zeros(3, 32240)).shape == (3, 200, 80)
    assert front_end.num_frames(399) == 0
    with pytest.raises(ValueError, match="0 frames have no length in samples"):
        front_end.num_samples(0)


@settings(max_examples=100, deadline=None)
@given(
    frames=st.integers(1, 5000),
    sample_rate=st.sampled_from([8000, 11025, 16000, 22050, 44100]),
    shift=st.sampled_from([5.0, 8.0, 10.0, 12.5]),
)
def test_samples_are_the_fewest_for_so_many_frames(frames, sample_rate, shift):
    front_end = build_front_end(sample_rate=sample_rate, frame_shift_ms=shift, num_bins=20)
    samples = front_end.num_samples(frames)
    assert front_end.num_frames(samples) == frames
    assert front_end.num_frames(samples - 1) == frames - 1


@pytest.mark.parametrize(
    ("waveforms", "message"),
    [
        (torch.zeros(399), r"shape \(399,\), expected floating-point samples"),
        (torch.zeros(0, 800), r"shape \(0, 800\), expected floating-point samples"),
        (torch.zeros(1, 800, dtype=torch.int16), r"torch\.int16 of shape \(1, 800\), expected floating-point"),
        (torch.zeros(1, 399), r"399 samples are shorter than one window of 400 samples \(25 ms at 16000 Hz\)"),
    ],
)
def test_refused_waveforms(waveforms, message):
    with pytest.raises(ValueError, match=message):
        build_front_end()(waveforms)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "kaldi"}, "features.backend is 'kaldi', expected one of torch, torchaudio"),
        ({"window": "blackman"}, "features.window is 'blackman', expected one of hamming, povey, hanning, rect"),
        ({"num_bins": 3}, "features.num_bins is 3, expected 4 filters or more"),
        ({"num_bins": 128}, "filter 3 .counted from 0. is so narrow that it covers no point of the 512-point"),
        ({"preemphasis": 1.5}, "features.preemphasis is 1.5, expected a factor from 0 to 1"),
        ({"sample_rate": 0}, "at 0 Hz make windows of 0 samples every 0"),
        ({"frame_shift_ms": 0.01}, "make windows of 400 samples every 0"),
        ({"low_freq": -1.0}, "a band from -1.0 to 8000.0 Hz, expected a band within 0 to 8000.0 Hz"),
        ({"high_freq": 9000.0}, "a band from 20.0 to 9000.0 Hz"),
        ({"high_freq": -7990.0}, "a band from 20.0 to 10.0 Hz"),
    ],
)
def test_refused_options(options, message):
    with pytest.raises(ValueError, match=message):
        build_front_end(**options)


@pytest.mark.parametrize(("int16_scale", "deviation"), [(True, 3.0 / 32768), (False, 3.0)])
def test_dither_noise_is_white_and_in_the_units_of_the_filter_bank(int16_scale, deviation):
    drawn = dither_noise(200_000, 3.0, int16_scale, torch.Generator().manual_seed(5))
    assert drawn.dtype == torch.float32
    assert drawn.shape == (200_000,)
    assert drawn.std().item() == pytest.approx(deviation, rel=0.01)
    assert abs(drawn.mean().item()) < 0.01 * deviation
    assert abs((drawn[1:] * drawn[:-1]).mean().item()) < 0.01 * deviation**2


def test_dither_noise_is_a_function_of_the_generator():
    first, second, other = (dither_noise(50, 1.0, True, torch.Generator().manual_seed(seed)) for seed in (7, 7, 8))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(dither_noise(50, 0.0, True, torch.Generator()), torch.zeros(50))
    with pytest.raises(ValueError, match=r"dither is -1\.0, expected a standard deviation of 0 or more"):
        dither_noise(50, -1.0, True, torch.Generator())


def test_dithered_silence_has_the_level_of_kaldi():
    """Mean log energy of the noise floor, over frames and bins (its standard error here is below 0.02)."""
    silence = np.zeros(160_000)
    kaldi = kaldi_fbank(silence, dither=1.0).mean()
    ours = features_of(dither_noise(160_000, 1.0, True, torch.Generator().manual_seed(2)).numpy()).mean()
    assert ours == pytest.approx(kaldi, abs=0.08)


def test_importing_the_package_does_not_import_torch():
    code = (
        "import sys, svtoolkit.features as features\n"
        "assert 'torch' not in sys.modules\n"
        "assert set(dir(features)) == set(features.__all__)\n"
        "assert all(getattr(features, name) for name in features.__all__)\n"
        "assert 'torch' in sys.modules and 'torchaudio' not in sys.modules\n"
        "features.absent\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "module 'svtoolkit.features' has no attribute 'absent'" in run.stderr
    assert "AssertionError" not in run.stderr
