"""A released model through Python: the same embedding by every way."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

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


# ---- what can be embedded ----


@pytest.fixture(scope="module")
def model(released: Path) -> svtoolkit.SpeakerModel:
    return svtoolkit.load_model(released, device="cpu")


@pytest.fixture
def file(speech: Path) -> Path:  # noqa: F811
    return KaldiDir.read(speech).utterances()[0].path


def test_a_file_object_an_array_and_a_tensor_give_the_embedding_of_the_file(
    model: svtoolkit.SpeakerModel, file: Path
) -> None:
    expected = model.embed(file)
    samples, rate = soundfile.read(file, dtype="float32")
    tensor = torch.from_numpy(samples)
    with open(file, "rb") as stream:
        np.testing.assert_array_equal(model.embed(stream), expected)
    for audio in (
        io.BytesIO(file.read_bytes()),
        Unseekable(file.read_bytes()),
        (samples, rate),
        (tensor, rate),
        tensor,
        tensor.double(),
        tensor[None],
        tensor.clone().requires_grad_(),
    ):
        np.testing.assert_array_equal(model.embed(audio), expected)


class Unseekable(io.BytesIO):
    """As a pipe is."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("seek")


def test_a_list_gives_a_row_for_each(model: svtoolkit.SpeakerModel, speech: Path) -> None:  # noqa: F811
    files = [utterance.path for utterance in KaldiDir.read(speech).utterances()[:3]]
    rows = model.embed([files[0], str(files[1]), soundfile.read(files[2])])
    assert rows.shape == (3, 16)
    for row, each in zip(rows, files, strict=True):
        np.testing.assert_array_equal(row, model.embed(each))


def test_samples_of_another_rate_are_converted_where_that_is_allowed(released: Path, tmp_path: Path) -> None:
    voice = synthesise_voice(2, 0, 0.8).astype(np.float32)
    soundfile.write(tmp_path / "48000.wav", voice, 48000, subtype="FLOAT")
    plain, resampling = (svtoolkit.load_model(released, device="cpu", resample=allowed) for allowed in (False, True))
    expected = resampling.embed(tmp_path / "48000.wav")
    np.testing.assert_array_equal(resampling.embed((voice, 48000)), expected)
    np.testing.assert_array_equal(resampling.embed(voice, sample_rate=48000), expected)
    with pytest.raises(UserError, match="found samples of 48000 Hz, expected 16000 Hz; convert them, or load"):
        plain.embed((voice, 48000))


def test_a_channel_of_a_tensor_is_chosen_as_that_of_a_file(released: Path, file: Path) -> None:
    samples, _ = soundfile.read(file, dtype="float32")
    both = torch.from_numpy(np.stack([np.zeros_like(samples) + 0.1, samples]))
    second = svtoolkit.load_model(released, device="cpu", channel=1)
    np.testing.assert_array_equal(second.embed(both), svtoolkit.load_model(released, device="cpu").embed(file))
    with pytest.raises(UserError, match="there is no channel 1, the tensor has 1"):
        second.embed(both[:1])
    with pytest.raises(UserError, match=r"found samples of shape \(2, \d+\), expected one channel"):
        svtoolkit.load_model(released, device="cpu").embed(both)


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (5, "found int, expected a path, a file object, an array, a tensor, or samples with their rate"),
        ([], "found an empty list, expected one recording or more"),
        (io.StringIO("text"), "<StringIO>: is open as text, expected bytes; open it with mode 'rb'"),
        (io.BytesIO(b"no audio at all"), "<BytesIO>: "),
        (torch.zeros(8000, dtype=torch.int16), "found samples of type int16, expected floating-point numbers"),
    ],
)
def test_what_is_no_audio_is_refused(model: svtoolkit.SpeakerModel, audio: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        model.embed(audio)


# ---- verify ----


def test_verify_decides_by_the_threshold(model: svtoolkit.SpeakerModel, speech: Path) -> None:  # noqa: F811
    first, second, third = (str(utterance.path) for utterance in KaldiDir.read(speech).utterances()[:3])
    score = model.similarity(first, second)
    undecided = model.verify(first, second, min_voice=0)
    assert (undecided.score, undecided.same_speaker, undecided.decision) == (score, None, None)
    assert repr(undecided) == f"Verification(score={score:.4g})"
    accepted = model.verify(first, second, threshold=score, min_voice=0)
    assert (accepted.same_speaker, accepted.decision, accepted.threshold) == (True, "same speaker", score)
    assert model.verify(first, second, threshold=score + 1e-9, min_voice=0).decision == "different speakers"
    units = [row / np.linalg.norm(row) for row in model.embed([first, second])]
    centre, other = np.mean(units, axis=0), model.embed(third)
    expected = centre @ other / np.linalg.norm(centre) / np.linalg.norm(other)
    assert model.verify([first, second], third, min_voice=0).score == pytest.approx(expected, abs=1e-6)


def test_verify_refuses_what_is_no_speech_and_embed_does_not(model: svtoolkit.SpeakerModel, file: Path) -> None:
    silence = np.zeros(RATE, dtype=np.float32)
    assert model.embed(silence).shape == (16,)
    for pair in ((silence, file), (file, silence), ([file, silence], file)):
        with pytest.raises(UserError, match=r"0.00 s of voice in 1.00 s, expected 0.\d+ s or more \(it is silent\)"):
            model.verify(*pair, threshold=0.0, min_voice=0.05)


def test_a_model_says_what_it_is(model: svtoolkit.SpeakerModel) -> None:
    assert re.fullmatch(
        r"<SpeakerModel resnet10: 0.0\d M parameters, embeddings of 16, 16000 Hz, cpu, no threshold>", repr(model)
    )
