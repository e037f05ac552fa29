"""Released files of ReDimNet and ReDimNet2 as their own code writes them, around the networks of WeSpeaker's port."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from foreign_networks import randomise
from torch import Tensor, nn

Load = Callable[[str], ModuleType]
"""The fixture ``wespeaker``."""

STAGES = [(1, 1, 1, [(3, 3)], None), (2, 1, 2, [(3, 3)], 8), (2, 2, 1, [(3, 3)], 4)]
STAGES2 = [
    ((1, 1), 1, 3, [(3, 3)], 4), ((2, 1), 1, 0.75, [(3, 3)], None), ((1, 2), 1, 1, [(3, 3)], 8),
    ((2, 2), 2, 2, [(3, 3)], 8),
]  # fmt: skip
NARROW: dict[str, Any] = {"F": 8, "C": 4, "stages_setup": STAGES, "group_divisor": 2, "embed_dim": 6}
NARROW2: dict[str, Any] = {"F": 8, "C": 4, "stages_setup": STAGES2, "embed_dim": 6}
"""Arguments of narrow networks of both generations."""


class MelSpectrogram(nn.Module):
    """torchaudio.transforms.MelSpectrogram with HTK's scale and no norm, in float32, and the names of its buffers."""

    def __init__(self, sample_rate, n_fft, win_length, hop_length, f_min, f_max, n_mels, window_fn) -> None:
        super().__init__()
        self.sizes = n_fft, hop_length, win_length
        self.spectrogram, self.mel_scale = nn.Module(), nn.Module()
        self.spectrogram.register_buffer("window", window_fn(win_length))
        mels = torch.linspace(*(2595.0 * np.log10(1.0 + edge / 700.0) for edge in (f_min, f_max)), n_mels + 2)
        edges = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
        slopes = edges.unsqueeze(0) - torch.linspace(0, sample_rate // 2, n_fft // 2 + 1).unsqueeze(1)
        widths = edges[1:] - edges[:-1]
        self.mel_scale.register_buffer(
            "fb", torch.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]).clamp(min=0.0)
        )

    def forward(self, x: Tensor) -> Tensor:
        window = self.spectrogram.window
        power = torch.stft(x, *self.sizes, window, pad_mode="reflect", return_complex=True).abs().square()
        return (power.transpose(1, 2) @ self.mel_scale.fb).transpose(1, 2)


def spectrogram_of(load: Load, kind: str, **arguments: Any) -> nn.Module:
    """The class that feat_type ``kind`` stands for, (batch, samples) -> (batch, bins, frames)."""
    if kind == "tf":
        return load("frontend.tfmel").TFMelBanks(**arguments).eval()
    torchaudio = ModuleType("torchaudio")
    torchaudio.transforms = ModuleType("torchaudio.transforms")  # type: ignore[attr-defined]
    torchaudio.transforms.MelSpectrogram = MelSpectrogram
    before = sys.modules.get("torchaudio")
    sys.modules["torchaudio"] = torchaudio
    try:
        return load("models.redimnet2").MelBanks(**arguments).eval()
    finally:
        del sys.modules["torchaudio"]
        if before is not None:
            sys.modules["torchaudio"] = before


class Released(nn.Module):
    """What the class of a released file is: features, backbone, pooling, and the layers that the port renames."""

    def __init__(self, load: Load, second: bool, config: dict[str, Any]) -> None:
        super().__init__()
        known = {key: value for key, value in config.items() if key not in FRONT_END}
        spec = {"n_mels": config["F"], "hop_length": config.get("hop_length", 160), **config.get("spec_params", {})}
        self.spec = spectrogram_of(load, config.get("feat_type", "pt"), **spec)
        known.pop("emb_bn", None), known.pop("head_activation", None), known.pop("num_classes", None)
        known["feat_dim"] = known.pop("F")
        module = load("models.redimnet2" if second else "models.redimnet")
        made = (module.ReDimNet2Wrap if second else module.ReDimNet)(**known)
        self.backbone, self.pool = made.backbone, made.pool
        self.bn = nn.BatchNorm1d(made.pool_out_dim)
        self.linear = nn.Linear(made.pool_out_dim, config.get("embed_dim", 192))
        if config.get("emb_bn"):
            self.bn2 = nn.BatchNorm1d(config.get("embed_dim", 192))
        self.pad, self.offset = config.get("pad_right_samples") or 0, config.get("before_pool_offset") or 0

    def forward(self, waveforms: Tensor) -> Tensor:
        padded = nn.functional.pad(waveforms, (0, self.pad))
        rows = self.backbone(self.spec(padded).unsqueeze(1))
        pooled = self.pool(rows.flatten(1, -2)[..., self.offset :])
        embedding = self.linear(self.bn(pooled))
        return self.bn2(embedding) if hasattr(self, "bn2") else embedding


FRONT_END = ("feat_type", "spec_params", "hop_length", "pad_right_samples", "before_pool_offset")


def released(load: Load, *, second: bool, **config: Any) -> tuple[nn.Module, dict[str, Any]]:
    """A network as if it were trained, and the content of its file."""
    given = {**(NARROW2 if second else NARROW), **config}
    torch.manual_seed(4)
    network = randomise(Released(load, second, given)).eval()
    return network, {"model_config": given, "state_dict": network.state_dict()}


def waveforms(samples: int, batch: int = 3) -> Tensor:
    """Noise: (batch, samples)."""
    random = np.random.default_rng(samples)
    return torch.from_numpy((0.1 * random.standard_normal((batch, samples))).astype(np.float32))


def assert_same_from_the_waveform(model: Any, theirs: nn.Module, lengths: tuple[int, ...] = (9_600, 50_720)) -> float:
    """Embeddings of 0.6 s and 3.17 s, one and three: equal to 1e-5 of the largest. Returns the worst share."""
    worst = 0.0
    for samples in lengths:
        for batch in (1, 3):
            sounds = waveforms(samples, batch)
            with torch.no_grad():
                expected = theirs(sounds)
                found = model.extractor.network(model.extractor.front_end(sounds))
            assert found.shape == expected.shape
            worst = max(worst, float((found - expected).abs().max() / expected.abs().max()))
        alone = torch.as_tensor(model.embed(sounds[0].numpy()))
        assert (alone - expected[0]).abs().max() <= 1e-5 * expected.abs().max()
    assert worst <= 1e-5
    return worst
