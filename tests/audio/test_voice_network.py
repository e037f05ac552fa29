"""The network of the speech check against onnxruntime on the file that its weights were taken from."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest
from spoken import spoken

from svtoolkit.audio import voice_network
from svtoolkit.audio.voice_network import CONTEXT, STRETCH, speech_probabilities


def reference(samples: np.ndarray) -> np.ndarray:
    onnxruntime = pytest.importorskip("onnxruntime")
    file = next(
        file for file in importlib.metadata.files("silero-vad") or [] if file.name.endswith("16k_sequence.onnx")
    )
    stretches = -(-len(samples) // STRETCH)
    padded = np.zeros(CONTEXT + STRETCH * stretches, dtype=np.float32)
    padded[CONTEXT : CONTEXT + len(samples)] = samples
    heard = np.lib.stride_tricks.sliding_window_view(padded, CONTEXT + STRETCH)[::STRETCH]
    begin = np.zeros((1, 1, 128), dtype=np.float32)
    session = onnxruntime.InferenceSession(str(file.locate()))
    return session.run(["speech_probs"], {"input": np.ascontiguousarray(heard), "h": begin, "c": begin})[0]


@pytest.mark.parametrize("seconds", [0.03, 0.5, 4.01])
def test_probabilities_are_those_of_the_original_but_for_half_precision(seconds: float) -> None:
    noise = np.random.default_rng(1).standard_normal(round(seconds * 16000)).astype(np.float32)
    for samples in (spoken(1, 0, seconds), spoken(2, 0, seconds) + 0.05 * noise, 0.1 * noise):
        np.testing.assert_allclose(speech_probabilities(samples), reference(samples), atol=0.02)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = spoken(4, 0, 2.0)
    whole = speech_probabilities(samples)
    monkeypatch.setattr(voice_network, "BLOCK", 5)
    np.testing.assert_allclose(speech_probabilities(samples), whole, atol=1e-5)
    assert whole.max() > 0.9


def test_nothing_has_no_probabilities() -> None:
    assert speech_probabilities(np.zeros(0, dtype=np.float32)).shape == (0,)
    assert speech_probabilities(np.zeros(1, dtype=np.float32)).shape == (1,)
