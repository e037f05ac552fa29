"""Waveforms in the memory that there is: batches are halved where it runs out, then recordings come in stretches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.models import build_model
from svtoolkit.scoring.forward import BoundedForward

RATE = 16000
torch.set_num_threads(1)


class Narrow(torch.nn.Module):
    """A device whose memory takes so many frames at once, and what was asked of it."""

    def __init__(self, module: torch.nn.Module, frames: int) -> None:
        super().__init__()
        self.module, self.frames = module, frames
        self.tried: list[tuple[int, int]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.tried.append((x.shape[0], x.shape[-1]))
        if x.shape[0] * x.shape[-1] > self.frames:
            raise torch.OutOfMemoryError("no memory is left")
        return self.module(x)


def make(seconds: float, frames: int = 1 << 30) -> tuple[BoundedForward, list[tuple[int, int]]]:
    torch.manual_seed(0)
    network = build_model("resnet10", num_bins=24, embedding_dim=16, base_width=4).eval()
    network.stem = Narrow(network.stem, frames)
    forward = BoundedForward(network, build_front_end(num_bins=24), torch.device("cpu"), "fp32", seconds)
    return forward, network.stem.tried


def noise(seconds: float, number: int = 0) -> np.ndarray:
    return np.random.default_rng(number).normal(0, 0.1, round(seconds * RATE)).astype(np.float32)


def test_a_batch_that_does_not_fit_is_halved_and_the_next_begin_smaller(caplog: pytest.LogCaptureFixture) -> None:
    waveforms = [noise(1.0, number) for number in range(5)]
    plenty, _ = make(100.0)
    expected = plenty(waveforms)
    forward, tried = make(100.0, frames=150)
    np.testing.assert_allclose(forward(waveforms), expected, rtol=1e-4, atol=1e-5)
    assert [batch for batch, _ in tried] == [5, 2, 1, 1, 1, 1, 1]
    tried.clear()
    np.testing.assert_allclose(forward(waveforms), expected, rtol=1e-4, atol=1e-5)
    assert [batch for batch, _ in tried] == [1] * 5
    assert caplog.messages[0].startswith("5 utterances of 1.0 s do not fit into the memory of cpu: continuing with 2")


def test_one_that_does_not_fit_comes_in_stretches_with_the_same_embedding(caplog: pytest.LogCaptureFixture) -> None:
    plenty, _ = make(100.0)
    forward, tried = make(100.0, frames=800)
    np.testing.assert_allclose(forward([noise(10.0)]), plenty([noise(10.0)]), rtol=1e-4, atol=1e-5)
    assert max(frames for _, frames in tried[1:]) <= 800
    assert caplog.messages == [
        "one utterance of 10.0 s does not fit into the memory of cpu: continuing in stretches of 5.0 s"
    ]


def test_a_recording_longer_than_a_batch_comes_in_stretches() -> None:
    plenty, _ = make(100.0)
    forward, tried = make(4.0)
    np.testing.assert_allclose(forward([noise(13.0)]), plenty([noise(13.0)]), rtol=1e-4, atol=1e-5)
    assert forward.geometry is not None
    assert len(tried) > 3
    assert max(frames for _, frames in tried) <= 400 + 2 * forward.geometry.context


def test_where_nothing_fits_the_message_says_what_to_do() -> None:
    forward, _ = make(100.0, frames=50)
    forward.geometry = None
    with pytest.raises(UserError, match=r"^one utterance of 1\.0 s does not fit into .* in stretches .* on the CPU$"):
        forward([noise(1.0)])
    forward, _ = make(100.0)
    assert forward.geometry is not None
    forward.network.stem.frames = 50
    with pytest.raises(UserError, match=r"^not even 1\.\d s of audio fit into the memory of cpu; end other programs"):
        forward([noise(9.0)])
