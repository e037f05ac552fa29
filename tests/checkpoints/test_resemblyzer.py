"""The one encoder whose true weights travel with its package: converted, and equal to its own code on sound."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile
import spectrograms
import torch
from paths import ROOT
from speech_material import synthesise_voice

from svtoolkit.checkpoints.released import read_released
from svtoolkit.checkpoints.resemblyzer import convert_resemblyzer
from svtoolkit.device import choose_device
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.models.ge2e import Partials
from svtoolkit.scoring.extraction import EmbeddingExtractor

SPEECH = ROOT.parent / "shared" / "data" / "librispeech_mini" / "wav"
FOUND = importlib.util.find_spec("resemblyzer")
PACKAGE = Path(FOUND.origin).parent if FOUND is not None and FOUND.origin is not None else None

needs_resemblyzer = pytest.mark.skipif(
    PACKAGE is None, reason="Resemblyzer is not installed: scripts/setup.sh --extras dev"
)


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    assert PACKAGE is not None
    return convert_resemblyzer(PACKAGE / "pretrained.pt", tmp_path_factory.mktemp("released"))


@pytest.fixture(scope="module")
def original() -> Any:
    """voice_encoder.VoiceEncoder with its weights; its mel spectrogram, librosa's, is that of the definition."""

    def mel(waveform: np.ndarray) -> np.ndarray:
        return spectrograms.res40(waveform.astype(np.float64), 40).astype(np.float32)

    assert PACKAGE is not None
    before = dict(sys.modules)
    try:
        package, audio = ModuleType("resemblyzer"), ModuleType("resemblyzer.audio")
        package.__path__ = [str(PACKAGE)]
        audio.wav_to_mel_spectrogram = mel
        package.audio = audio
        sys.modules |= {"resemblyzer": package, "resemblyzer.audio": audio}
        return importlib.import_module("resemblyzer.voice_encoder").VoiceEncoder("cpu", verbose=False)
    finally:
        for name in set(sys.modules) - set(before):
            if name.partition(".")[0] == "resemblyzer":
                del sys.modules[name]


def sounds() -> list[np.ndarray]:
    """Speech where the corpus is there, at lengths with one stretch, with a last one that is dropped and one kept."""
    files = sorted(SPEECH.rglob("*.flac"))[:4] + sorted(SPEECH.rglob("*.wav"))[:4]
    speech = [soundfile.read(file, dtype="float32")[0] for file in files]
    voice = np.concatenate(speech) if speech else np.float32(synthesise_voice(1, 2, 21.0))
    return [voice[:samples] for samples in (9600, 25600, 30000, 45000, 50720, 320000)] + speech


@needs_resemblyzer
def test_embeddings_are_those_of_the_original(released, original):
    network, description = read_released(released)
    extractor = EmbeddingExtractor(network, front_end_of(description.features), choose_device("cpu"))
    for waveform in sounds():
        np.testing.assert_allclose(
            extractor.embed_waveform(waveform), original.embed_utterance(waveform), rtol=0, atol=1e-5
        )
    same = [extractor.forward([waveform] * 3) for waveform in sounds()[2:4]]
    assert all(np.allclose(rows, rows[0], atol=1e-6) for rows in same)
    assert np.abs(same[0][0] - same[1][0]).max() > 1e-3


@needs_resemblyzer
def test_stretches_are_those_of_the_original(original):
    for samples in [*range(400, 60_000, 997), 16000 * 61]:
        _, slices = original.compute_partial_slices(samples, 1.3, 0.75)
        assert Partials().starts(samples, 160) == [part.start for part in slices]


@needs_resemblyzer
def test_a_long_recording_takes_no_more_than_a_batch_at_once(released):
    network, description = read_released(released)
    waveform = sounds()[5]
    once, seen = [], []
    network.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    for seconds in (120.0, 4.0):
        front_end = front_end_of(description.features)
        extractor = EmbeddingExtractor(network, front_end, choose_device("cpu"), batch_seconds=seconds)
        once.append(extractor.embed_waveform(waveform))
    np.testing.assert_allclose(once[0], once[1], atol=1e-6)
    assert max(seen[1:]) == 2


def test_other_weights_are_refused(tmp_path):
    torch.save({"model_state": {"linear.weight": torch.ones(2, 2)}}, tmp_path / "a.pt")
    with pytest.raises(
        UserError, match=r"a\.pt: holds no encoder of Resemblyzer \(embedding\.bias, embedding\.weight, l"
    ):
        convert_resemblyzer(tmp_path / "a.pt", tmp_path / "out")
    assert not (tmp_path / "out").exists()
