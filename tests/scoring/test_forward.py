"""Waveforms in the memory that there is: batches are halved where it runs out, then recordings come in stretches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from svtoolkit.device import is_out_of_memory
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.models import build_model
from svtoolkit.scoring.forward import BoundedForward, TooLongError
from svtoolkit.scoring.pass_memory import PassMemory

RATE = 16000
torch.set_num_threads(1)


SIGNS = [
    torch.OutOfMemoryError("no memory is left"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:1] err == 0. DefaultCPUAllocator: can't allocate memory: you tried ..."
    ),
    MemoryError(),
]
"""By which a GPU, the CPU's allocator and numpy say that memory has run out."""


class Narrow(torch.nn.Module):
    """A device whose memory takes so many frames at once, and what was asked of it."""

    def __init__(self, module: torch.nn.Module, frames: int) -> None:
        super().__init__()
        self.module, self.frames = module, frames
        self.sign: BaseException = SIGNS[0]
        self.tried: list[tuple[int, int]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.tried.append((x.shape[0], x.shape[-1]))
        if x.shape[0] * x.shape[-1] > self.frames:
            raise self.sign
        return self.module(x)


def make(seconds: float, frames: int = 1 << 30) -> tuple[BoundedForward, list[tuple[int, int]]]:
    torch.manual_seed(0)
    network = build_model("resnet10", num_bins=24, embedding_dim=16, base_width=4).eval()
    network.stem = Narrow(network.stem, frames)
    forward = BoundedForward(network, build_front_end(num_bins=24), torch.device("cpu"), "fp32", seconds)
    return forward, network.stem.tried


def noise(seconds: float, number: int = 0) -> np.ndarray:
    return np.random.default_rng(number).normal(0, 0.1, round(seconds * RATE)).astype(np.float32)


@pytest.mark.parametrize("sign", SIGNS, ids=["gpu", "cpu", "numpy"])
def test_a_batch_that_does_not_fit_is_halved_and_the_next_begin_smaller(
    sign: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    waveforms = [noise(1.0, number) for number in range(5)]
    plenty, _ = make(100.0)
    expected = plenty(waveforms)
    forward, tried = make(100.0, frames=150)
    forward.network.stem.sign = sign
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


def test_the_allocator_of_the_cpu_says_what_is_taken_for_it() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


def test_what_is_predicted_not_to_fit_is_not_tried() -> None:
    forward, tried = make(2.0)
    forward.geometry = None
    forward.memory, forward.room = PassMemory(0.0, 0.0, 1e6), 9e6
    assert forward([noise(8.0)]).shape == (1, 16)
    tried.clear()
    message = (
        r"^one utterance of 10\.0 s is predicted to need 139 MiB, of 138 MiB that may be used, and this network .* memo"
    )
    with pytest.raises(TooLongError, match=message):
        forward([noise(10.0)])
    assert not tried


def test_stretches_leave_room_for_their_context_and_for_the_recording() -> None:
    plenty, _ = make(100.0)
    forward, tried = make(10.0)
    assert forward.geometry is not None
    frames, context = 400, forward.geometry.context
    whole = noise(13.0).nbytes + 4 * 24 * 1298
    forward.memory, forward.room = PassMemory(0.0, 0.0, 1e6), (frames + 2 * context) * 1e4 + whole
    np.testing.assert_allclose(forward([noise(13.0)]), plenty([noise(13.0)]), rtol=1e-4, atol=1e-5)
    assert frames * 0.95 < max(length for _, length in tried) - 2 * context <= frames
    forward.room = 50 * 1e4 + whole
    with pytest.raises(
        TooLongError, match=r"^one utterance of 13\.0 s does not fit into the .*, not even in stretches"
    ):
        forward([noise(13.0)])


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
