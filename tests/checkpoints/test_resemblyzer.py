"""The one encoder whose true weights travel with its package: read as it is, and equal to its own code on sound."""

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
from svtoolkit.checkpoints.releases import find_release, read_release
from svtoolkit.cli import main
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
def released() -> Path:
    assert PACKAGE is not None
    return PACKAGE / "pretrained.pt"


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
    return [voice[:samples] for samples in (9600, 25600, 30000, 45000, 50720, 160000)] + speech[:1]


@needs_resemblyzer
def test_embeddings_are_those_of_the_original(released, original):
    network, description = read_release(released)
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
    network, description = read_release(released)
    waveform = sounds()[5]
    once, seen = [], []
    network.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    for seconds in (120.0, 4.0):
        front_end = front_end_of(description.features)
        extractor = EmbeddingExtractor(network, front_end, choose_device("cpu"), batch_seconds=seconds)
        once.append(extractor.embed_waveform(waveform))
    np.testing.assert_allclose(once[0], once[1], atol=1e-6)
    assert max(seen[1:]) == 2


@needs_resemblyzer
def test_the_folder_of_the_package_and_what_becomes_of_it(released, tmp_path, capsys):
    out = tmp_path / "ours"
    assert find_release(released.parent) == find_release(released)
    assert main(["convert-model", f"model={released}", f"out={out}"]) == 0, capsys.readouterr().err
    first, second = read_release(released), read_released(out)
    assert (first[1].model, first[1].features) == (second[1].model, second[1].features)
    assert all(torch.equal(tensor, second[0].state_dict()[name]) for name, tensor in first[0].state_dict().items())


def state(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """The weights of an encoder, of zeros."""
    made = {"similarity_weight": torch.ones(1), "similarity_bias": torch.zeros(1)}
    for layer, inputs in enumerate((40, 256, 256)):
        made |= {
            f"lstm.weight_ih_l{layer}": torch.zeros(1024, inputs),
            f"lstm.weight_hh_l{layer}": torch.zeros(1024, 256),
        }
        made |= {f"lstm.bias_{side}_l{layer}": torch.zeros(1024) for side in ("ih", "hh")}
    made |= {"linear.weight": torch.zeros(256, 256), "linear.bias": torch.zeros(256)}
    return {name: tensor for name, tensor in {**made, **changes}.items() if tensor is not None}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"linear.bias": None}, "there is no 'embedding.bias'"),
        ({"linear.weight": None, "linear.bias": None}, "encoder has weights 'linear.*', and there are none here"),
        ({"lstm.weight_ih_l3": torch.zeros(1024, 256)}, "'lstm.weight_ih_l3' is not a weight of a Resemblyzer encoder"),
        ({"lstm.weight_ih_l0": torch.zeros(1024, 80)}, "lstm.weight_ih_l0 is (1024, 80), expected (1024, 40)"),
        ({"lstm.weight_hh_l1": torch.zeros(3)}, "'lstm.weight_hh_l1' is (3,) where the network has (1024, 256)"),
    ],
)
def test_other_weights_are_refused(tmp_path, change, found):
    file = tmp_path / "encoder.pt"
    torch.save({"step": 3, "model_state": state(**change)}, file)
    with pytest.raises(UserError) as caught:
        read_release(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert found in str(caught.value)


def test_what_is_no_encoder(tmp_path):
    file = tmp_path / "pretrained.pt"
    torch.save({"model_state": {"linear.weight": torch.ones(2, 2)}}, file)
    assert find_release(tmp_path) is None
    with pytest.raises(UserError, match=r"pretrained\.pt: holds 'linear\.weight', weights of no kind that is known"):
        read_release(file)
    torch.save({"model_state": state()}, file)
    assert read_release(tmp_path)[1].model == {"name": "ge2e_lstm", "num_bins": 40, "embedding_dim": 256}
