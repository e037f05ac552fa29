"""A released model through Python: the same embedding by every way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from speech_material import RATE, speech, synthesise_voice  # noqa: F401  (a fixture is used by its name)

import svtoolkit
from svtoolkit.checkpoints.released import ModelDescription, read_description, write_description, write_released
from svtoolkit.config import FeaturesConfig
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.models import build_model


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(5)
    sizes = {"name": "resnet10", "num_bins": 24, "embedding_dim": 16, "base_width": 4}
    weights = build_model(**sizes).state_dict()  # type: ignore[arg-type]
    folder = tmp_path_factory.mktemp("released")
    return write_released(folder, weights, ModelDescription(sizes, FeaturesConfig(num_bins=24)))


def test_a_file_its_samples_and_its_data_directory_give_one_embedding(released: Path, speech: Path) -> None:  # noqa: F811
    model = svtoolkit.load_model(released, device="cpu")
    utterance = KaldiDir.read(speech).utterances()[0]
    samples, _ = soundfile.read(utterance.path, dtype="float32")
    embedding = model.embed(utterance.path)
    assert embedding.shape == (16,)
    assert embedding.dtype == np.float32
    np.testing.assert_array_equal(model.embed(str(utterance.path)), embedding)
    np.testing.assert_array_equal(model.embed(samples), embedding)
    np.testing.assert_array_equal(model.extractor.extract([utterance]).embeddings[0], embedding)


def test_similarity_is_a_cosine(released: Path, speech: Path) -> None:  # noqa: F811
    model = svtoolkit.load_model(released, device="cpu")
    first, second = (utterance.path for utterance in KaldiDir.read(speech).utterances()[:2])
    a, b = model.embed(first).astype(np.float64), model.embed(second).astype(np.float64)
    expected = a @ b / np.sqrt((a @ a) * (b @ b))
    assert model.similarity(first, second) == pytest.approx(expected, abs=1e-12)
    assert model.similarity(second, first) == pytest.approx(expected, abs=1e-12)
    assert model.similarity(first, first) == pytest.approx(1.0, abs=1e-12)


def test_the_threshold_is_that_of_the_description(released: Path, tmp_path: Path) -> None:
    model = svtoolkit.load_model(released, device="cpu")
    assert model.threshold is None
    assert model.sample_rate == RATE
    for file in released.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    description = read_description(tmp_path)
    description.verification = {"threshold": 0.25}
    write_description(tmp_path, description)
    assert svtoolkit.load_model(tmp_path, device="cpu").threshold == 0.25


@pytest.mark.parametrize(
    ("name", "samples", "rate", "message"),
    [
        ("short.wav", np.zeros(100), RATE, "short.wav.*shorter than one"),
        ("other.wav", np.zeros(8000), 8000, "other.wav.*8000 Hz"),
        ("stereo.wav", np.zeros((8000, 2)), RATE, "stereo.wav.*2 channels"),
        ("nan.wav", np.full(8000, np.nan), RATE, "nan.wav: the embedding is not finite; check the audio for NaN"),
    ],
)
def test_what_cannot_be_embedded_is_named(
    released: Path, tmp_path: Path, name: str, samples: np.ndarray, rate: int, message: str
) -> None:
    soundfile.write(tmp_path / name, samples, rate, subtype="FLOAT")
    with pytest.raises(UserError, match=message):
        svtoolkit.load_model(released, device="cpu").embed(tmp_path / name)


def test_options_of_extraction_reach_it(released: Path, tmp_path: Path) -> None:
    voice = synthesise_voice(1, 0, 0.6)
    soundfile.write(tmp_path / "stereo.wav", np.stack([voice, 0 * voice], axis=1), RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "mono.wav", voice, RATE, subtype="FLOAT")
    model = svtoolkit.load_model(released, device="cpu", channel=0)
    np.testing.assert_array_equal(model.embed(tmp_path / "stereo.wav"), model.embed(tmp_path / "mono.wav"))


def test_a_front_end_that_is_not_to_be_had_here_is_a_sentence(released: Path, tmp_path: Path) -> None:
    for file in released.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    description = read_description(tmp_path)
    description.features.window = "triangle"
    write_description(tmp_path, description)
    with pytest.raises(UserError, match="triangle"):
        svtoolkit.load_model(tmp_path, device="cpu")


def test_the_package_has_no_other_lazy_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'load_modell'"):
        svtoolkit.load_modell  # noqa: B018


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(8000, dtype=np.int16), "found samples of type int16, expected floating-point numbers"),
        (np.zeros((1, 8000)), r"found samples of shape \(1, 8000\), expected one channel of shape \(samples,\)"),
        (np.zeros(399), "399 samples are shorter than one window of 400"),
        (np.full(8000, np.inf), "the embedding is not finite"),
    ],
)
def test_samples_that_cannot_be_embedded_are_refused(released: Path, samples: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        svtoolkit.load_model(released, device="cpu").embed(samples)


def test_float64_samples_are_those_of_float32_and_the_mode_of_the_network_is_put_back(released: Path) -> None:
    model = svtoolkit.load_model(released, device="cpu")
    voice = synthesise_voice(2, 0, 0.4).astype(np.float32)
    model.extractor.network.train()
    expected = model.embed(voice)
    assert model.extractor.network.training
    np.testing.assert_array_equal(model.embed(voice.astype(np.float64)), expected)
