"""The torchaudio backend: what it passes on, and what it says where torchaudio cannot be imported."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from svtoolkit.features import build_front_end

torch.set_num_threads(1)


class StandInKaldi(ModuleType):
    """Has the one function of ``torchaudio.compliance.kaldi`` that is used; keeps how it was called."""

    def __init__(self) -> None:
        super().__init__("torchaudio.compliance.kaldi")
        self.calls: list[tuple[torch.Tensor, dict[str, Any]]] = []
        self.autocast = True

    def fbank(self, waveform: torch.Tensor, **options: Any) -> torch.Tensor:
        self.calls.append((waveform, options))
        self.autocast = torch.is_autocast_enabled("cpu")
        frames = 1 + (waveform.shape[1] - 200) // 80
        rows = torch.arange(frames, dtype=torch.float32)[:, None]
        return waveform.sum() + rows.expand(frames, options["num_mel_bins"])


@pytest.fixture
def kaldi(monkeypatch) -> StandInKaldi:
    module = StandInKaldi()
    for name in ("torchaudio", "torchaudio.compliance"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "torchaudio.compliance.kaldi", module)
    return module


def test_every_option_is_passed_on(kaldi):
    front_end = build_front_end(
        backend="torchaudio",
        sample_rate=8000,
        num_bins=40,
        frame_length_ms=25.0,
        frame_shift_ms=10.0,
        window="povey",
        preemphasis=0.9,
        low_freq=60.0,
        high_freq=-200.0,
        remove_mean=False,
    )
    waveforms = torch.arange(2 * 360, dtype=torch.float32).reshape(2, 360) / 1000
    features = front_end(waveforms)
    assert len(kaldi.calls) == 2
    for waveform, (passed, options) in zip(waveforms, kaldi.calls, strict=True):
        assert torch.equal(passed, waveform[None] * 32768)
        assert options == {
            "sample_frequency": 8000.0,
            "num_mel_bins": 40,
            "frame_length": 25.0,
            "frame_shift": 10.0,
            "window_type": "povey",
            "preemphasis_coefficient": 0.9,
            "low_freq": 60.0,
            "high_freq": -200.0,
            "dither": 0.0,
            "remove_dc_offset": True,
            "snip_edges": True,
            "round_to_power_of_two": True,
            "use_energy": False,
            "use_power": True,
            "use_log_fbank": True,
            "subtract_mean": False,
            "vtln_low": 100.0,
            "vtln_high": -500.0,
            "vtln_warp": 1.0,
        }
    assert features.shape == (2, 3, 40)
    offsets = (waveforms * 32768).sum(dim=1)
    torch.testing.assert_close(features[:, 0, 0], offsets)


def test_scale_mean_and_autocast(kaldi):
    front_end = build_front_end(backend="torchaudio", sample_rate=8000, num_bins=20, int16_scale=False)
    waveforms = torch.full((1, 360), 0.25)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = front_end(waveforms)
    assert torch.equal(kaldi.calls[0][0], waveforms)
    assert not kaldi.autocast
    assert torch.equal(features[0, :, 0], torch.tensor([-1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match="199 samples are shorter than one window of 200"):
        front_end(torch.zeros(1, 199))


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ModuleNotFoundError("No module named 'torchaudio'"), "ModuleNotFoundError: No module named 'torchaudio'"),
        (OSError("Could not load this library:\n _torchaudio.so"), "OSError: Could not load this library: _torchaudio"),
        (RuntimeError("operator torchaudio::x does not exist"), "RuntimeError: operator torchaudio::x does not exist"),
    ],
)
def test_refusal_says_what_was_found_and_what_to_do(monkeypatch, error, found):
    def refuse(name: str) -> ModuleType:
        assert name == "torchaudio.compliance.kaldi"
        raise error

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(ImportError) as caught:
        build_front_end(backend="torchaudio")
    message = str(caught.value)
    assert message.startswith(f"features.backend=torchaudio needs a torchaudio that matches torch {torch.__version__}")
    assert found in message
    assert message.endswith("install a matching build, or train with features.backend=torch")
    assert "\n" not in message


def test_missing_torchaudio(monkeypatch):
    """None in sys.modules is how Python marks a module that cannot be imported."""
    monkeypatch.setitem(sys.modules, "torchaudio", None)
    monkeypatch.delitem(sys.modules, "torchaudio.compliance.kaldi", raising=False)
    with pytest.raises(ImportError, match=r"train with features\.backend=torch"):
        build_front_end(backend="torchaudio")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": "povey", "int16_scale": False},
        {"sample_rate": 8000, "num_bins": 40, "low_freq": 60.0, "high_freq": -400.0},
    ],
    ids=str,
)
def test_equal_to_the_torch_backend(options):
    try:
        importlib.import_module("torchaudio.compliance.kaldi")
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"torchaudio cannot be imported: {error}")
    waveforms = torch.randn(2, 8123, generator=torch.Generator().manual_seed(0)) * 0.1
    theirs = build_front_end(backend="torchaudio", **options)(waveforms)
    torch.testing.assert_close(build_front_end(**options)(waveforms), theirs, rtol=0, atol=1e-3)
