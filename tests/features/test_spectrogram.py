"""The front ends of other toolkits against their definitions in float64, and against their own code where it is."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import spectrograms
import torch
from paths import ROOT

from svtoolkit.composition import compose
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd
from svtoolkit.features.mel_scales import slaney_filters
from svtoolkit.models.front_ends import FRONT_ENDS, features_config, front_end_of

SPEECH = ROOT.parent / "shared" / "data" / "librispeech_mini" / "wav"
LENGTHS = (9600, 50720, 320000)
"""0.6 s, 3.17 s, 20 s."""
BLOCKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sb80": (spectrograms.speechbrain, {}),
    "sb24": (spectrograms.speechbrain, {}),
    "nemo80": (spectrograms.nemo, {}),
    "clova": (spectrograms.clova, {"num_bins": 64}),
    "redim_pt": (spectrograms.redim_pt, {"norm_signal": True}),
    "redim_tf": (spectrograms.redim_tf, {"norm_signal": True}),
    "res40": (spectrograms.res40, {}),
}

torch.set_num_threads(1)


def front_end(name: str, **changes: Any) -> FrontEnd:
    return front_end_of(features_config({"backend": name, **changes}))


@functools.cache
def recordings() -> np.ndarray:
    """Forty seconds of speech; nothing where the corpus is not there."""
    speech = np.empty(0, np.float32)
    for file in sorted(path for path in SPEECH.rglob("*") if path.suffix in (".flac", ".wav")):
        speech = np.concatenate([speech, soundfile.read(file, dtype="float32")[0]])
        if len(speech) >= 2 * LENGTHS[-1]:
            break
    return speech


def waveforms(batch: int, samples: int) -> torch.Tensor:
    """Speech, or where the corpus is not there a tone that moves under noise."""
    speech = recordings()
    if len(speech):
        return torch.from_numpy(np.stack([np.roll(speech, -9000 * row)[:samples] for row in range(batch)]))
    random = np.random.default_rng(samples)
    times = np.arange(samples) / 16000
    tones = [np.sin(2 * np.pi * (150 + 40 * np.sin(3 * times)) * times + row) for row in range(batch)]
    return torch.from_numpy(np.float32(0.2 * np.stack(tones) + random.normal(0, 0.02, (batch, samples))))


def assert_close(found: torch.Tensor, expected: np.ndarray | torch.Tensor, name: str) -> None:
    """To a thousandth: of a decibel's tenth, of a logarithm, or of the loudest energy.

    In the faintest filters the difference of two float32 transforms is no less.
    """
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert found.shape == expected.shape
    worst = (found.double() - expected).abs()
    scale = {"sb80": 4.0, "sb24": 4.0, "res40": 0.01}.get(name, 1.0)
    assert worst.max() < 2e-3 * scale
    assert worst.mean() < 1e-5 * scale


@pytest.mark.parametrize("samples", LENGTHS)
@pytest.mark.parametrize("name", BLOCKS)
def test_equal_to_the_definition(name, samples):
    definition, changes = BLOCKS[name]
    built = front_end(name, **changes)
    batch = waveforms(3 if samples < 100_000 else 1, samples)
    flags = {key: value for key, value in changes.items() if key == "norm_signal"}
    features = built(batch)
    for row in (0,) if len(batch) == 1 else (0, 2):
        assert_close(features[row], definition(batch[row].double().numpy(), built.num_bins, **flags), name)
    assert features.shape == (len(batch), built.num_frames(samples), built.num_bins)


@pytest.mark.parametrize("name", [*BLOCKS, "kaldi_3d"])
def test_what_a_front_end_owes(name):
    built = front_end(name)
    batch = waveforms(3, 9600 + 77)
    expected = built(batch)
    assert not built.state_dict()
    assert built.framewise is (name == "kaldi_3d")
    torch.testing.assert_close(built(batch[1:2]), expected[1:2], rtol=0, atol=2e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(built(batch), expected)
    assert torch.equal(built.bfloat16()(batch), expected)
    assert torch.equal(pickle.loads(pickle.dumps(built))(batch), expected)
    for frames in (4, 57, 200):
        samples = built.num_samples(frames)
        assert (built.num_frames(samples), built.num_frames(samples - 1)) == (frames, frames - 1)
        assert built(batch.repeat(1, 4)[:, :samples]).shape[1] == frames
    assert built.num_samples(1) == 400
    assert built(batch[:, :400]).isfinite().all()
    with pytest.raises(ValueError, match="399 samples are shorter than one window of 400 samples"):
        built(batch[:, :399])
    with pytest.raises(ValueError, match="0 frames have no length"):
        built.num_samples(0)


def test_gradients_reach_the_waveform_and_silence_is_finite():
    for name in BLOCKS:
        batch = waveforms(1, 4000).requires_grad_()
        built = front_end(name)
        built(batch).square().sum().backward()
        assert batch.grad is not None
        assert batch.grad.isfinite().all()
        assert built(torch.zeros(1, 1600)).isfinite().all()


def test_statistics_are_those_of_the_crop():
    """A crop is normalised by itself, and the floor of SpeechBrain's levels is that of its own loudest."""
    batch = torch.cat([waveforms(1, 16000), 5e-6 * torch.randn(1, 16000, generator=torch.Generator())], dim=1)
    built = front_end("sb80")
    assert built(batch)[0, 110:].std(0).max() < 1e-3  # under the floor of 80 dB
    assert built(batch[:, 16000:])[0].std(0).max() > 1.0


@pytest.mark.parametrize(
    ("name", "key", "value", "fixed"),
    [
        ("sb80", "window", "povey", "'hamming'"),
        ("sb24", "num_bins", 80, "24"),
        ("nemo80", "remove_mean", False, "True"),
        ("clova", "int16_scale", True, "False"),
        ("redim_tf", "frame_length_ms", 20.0, "25.0"),
        ("res40", "sample_rate", 8000, "16000"),
        ("kaldi_3d", "window", "hamming", "'povey'"),
    ],
)
def test_what_is_fixed_is_refused(name, key, value, fixed):
    with pytest.raises(
        UserError, match=rf"features\.{key} is {value!r}, but the front end {name} fixes it to {fixed}; leave"
    ):
        front_end(name, **{key: value})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_bins": 2}, "features.num_bins is 2, expected 4 filters or more"),
        ({"num_bins": 300}, "features.num_bins is 300, but filter 2 .* covers no point of the 512-point spectrum"),
        ({"preemphasis": 1.5}, "features.preemphasis is 1.5, expected a factor from 0 to 1"),
        ({"low_freq": 7700.0}, "make a band from 7700.0 to 7600.0 Hz, expected a band within 0 to 8000.0 Hz"),
        ({"norm_signal": 1}, "norm_signal is 1, expected true or false"),
        ({"dither": 1.0}, "features has no option 'dither'"),
    ],
)
def test_what_is_free_has_limits(changes, says):
    with pytest.raises(UserError, match=says):
        front_end("redim_pt", **changes)


def test_what_is_free_is_used():
    batch = waveforms(1, 9600)
    features = front_end("redim_pt", preemphasis=0.0, low_freq=50.0, high_freq=-1000.0)(batch)
    assert (features - front_end("redim_pt")(batch)).abs().max() > 0.1
    quieter = front_end("redim_tf", norm_signal=True)(batch * 0.1)
    torch.testing.assert_close(quieter, front_end("redim_tf", norm_signal=True)(batch), rtol=0, atol=2e-2)


@pytest.mark.parametrize("name", ["redim_pt", "redim_tf"])
def test_zeros_behind_the_waveform_and_another_shift(name):
    padded, plain = front_end(name, pad_right=80, frame_shift_ms=15.0), front_end(name, frame_shift_ms=15.0)
    for samples in (320, 4000, 9600):
        batch = waveforms(2, samples)
        expected = plain(torch.nn.functional.pad(batch, (0, 80)))
        assert torch.equal(padded(batch), expected)
        assert padded.num_frames(samples) == expected.shape[1]
    for frames in (1, 40):
        fewest = padded.num_samples(frames)
        assert padded.num_frames(fewest) >= frames > padded.num_frames(fewest - 1)
    with pytest.raises(ValueError, match="319 samples are shorter than one window"):
        padded(waveforms(1, 319))
    with pytest.raises(UserError, match=r"pad_right is -1, expected a number from 0"):
        front_end(name, pad_right=-1)


def test_the_command_line_chooses_one():
    given = compose("train", ["data.train=d", "exp_dir=e", "model=resnet10", "features=clova", "features.num_bins=64"])
    assert (given.features.backend, given.features.num_bins, given.features.window) == ("clova", 64, "hamming")
    assert "torchaudio" in FRONT_ENDS
    with pytest.raises(UserError, match="torchaudio"):
        compose("train", ["data.train=d", "exp_dir=e", "model=resnet10", "features=torchaudio"])


@pytest.fixture
def toolkit(monkeypatch) -> Iterator[Any]:
    """Imports modules of a toolkit one by one: its packages run nothing, and what they import is given."""
    before = set(sys.modules)

    def load(module: str, **given: dict[str, Any]) -> ModuleType:
        package = module.partition(".")[0]
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            pytest.skip(f"{package} is not installed: scripts/setup.sh --extras dev")
        root = Path(found.submodule_search_locations[0])
        parts = module.split(".")
        for depth in range(1, len(parts)):
            stand_in = ModuleType(".".join(parts[:depth]))
            stand_in.__path__ = [str(root.joinpath(*parts[1:depth]))]
            monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
        for name, attributes in given.items():
            stand_in = ModuleType(name)
            vars(stand_in).update(attributes)
            monkeypatch.setitem(sys.modules, name, stand_in)
        return importlib.import_module(module)

    yield load
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("speechbrain", "nemo"):
            del sys.modules[name]


@pytest.mark.parametrize("samples", LENGTHS)
def test_equal_to_speechbrain(toolkit, samples):
    def marked(item: Any, *_: Any, **__: Any) -> Any:
        return item

    original = toolkit(
        "speechbrain.processing.features",
        **{
            "speechbrain.utils": {"__path__": []},
            "speechbrain.utils.checkpoints": {
                "mark_as_loader": marked,
                "mark_as_saver": marked,
                "mark_as_transfer": marked,
                "register_checkpoint_hooks": marked,
            },
            "speechbrain.utils.distributed": {"ddp_all_reduce": None},
            "speechbrain.utils.filter_analysis": {"FilterProperties": None},
            "speechbrain.utils.logger": {"get_logger": logging.getLogger},
            "speechbrain.dataio": {"__path__": []},
            "speechbrain.dataio.dataio": {"length_to_mask": None},
        },
    )
    transform = original.STFT(16000, n_fft=400, win_length=25, hop_length=10)
    for name, bins in (("sb80", 80), ("sb24", 24)):
        filters = original.Filterbank(n_mels=bins, f_min=0, f_max=8000, n_fft=400, sample_rate=16000)
        for batch in (1, 3):
            inputs = waveforms(batch, samples)
            levels = filters(original.spectral_magnitude(transform(inputs)))
            # InputNormalization(norm_type="sentence", std_norm=False)
            assert_close(front_end(name)(inputs), levels - levels.mean(1, keepdim=True), name)


@pytest.mark.parametrize("samples", LENGTHS)
def test_equal_to_nemo(toolkit, samples):
    """But for librosa's filters, which are ours, and for the zeros after the last frame, which its networks mask."""

    def mel(sr: int, n_fft: int, n_mels: int, fmin: float, fmax: float, norm: str) -> np.ndarray:
        assert norm == "slaney"
        return slaney_filters(np.linspace(0.0, sr / 2, n_fft // 2 + 1), fmin, fmax, n_mels).T

    original = toolkit(
        "nemo.collections.asr.parts.preprocessing.features",
        librosa={"filters": SimpleNamespace(mel=mel)},
        **{
            "nemo.collections.asr.parts.preprocessing.perturb": {"AudioAugmentor": None},
            "nemo.collections.asr.parts.preprocessing.segment": {"AudioSegment": None},
            "nemo.utils": {"logging": logging},
        },
    )
    made = original.FilterbankFeatures(sample_rate=16000, n_window_size=400, n_window_stride=160, n_fft=512, nfilt=80)
    made.eval()
    for batch in (1, 3):
        inputs = waveforms(batch, samples)
        padded, frames = made(inputs.clone(), torch.full((batch,), samples))
        assert not padded[:, :, frames[0] :].any()
        assert_close(front_end("nemo80")(inputs), padded[:, :, : frames[0]].transpose(1, 2), "nemo80")


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("samples", LENGTHS)
def test_equal_to_tfmel_of_wespeaker(wespeaker, samples):
    tfmel = wespeaker("frontend.tfmel")
    for norm_signal in (False, True):
        original = tfmel.TFMelBanks(n_mels=72, norm_signal=norm_signal).eval()
        for batch in (1, 3):
            inputs = waveforms(batch, samples)
            expected = original(inputs).transpose(1, 2)
            assert_close(front_end("redim_tf", norm_signal=norm_signal)(inputs), expected, "redim_tf")
