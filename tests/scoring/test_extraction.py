"""Embeddings of whole utterances: a batch gives what one alone gives, a failure stops nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from speech_material import RATE, speech, synthesise_voice  # noqa: F401  (a fixture is used by its name)

from svtoolkit.audio.files import read_audio
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.device import choose_device
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.scoring import extraction
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.scoring.pass_memory import PassMemory, in_all

BINS = 24


class MeanFrame(torch.nn.Module):
    """A network that is nothing but the contract: (batch, frames, bins) -> (batch, embedding_dim)."""

    embedding_dim = BINS

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return frames.mean(dim=1)


class MeanSize(MeanFrame):
    """Of features whose mean is removed, this is not 0."""

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return frames.abs().mean(dim=1)


def make_extractor(network: torch.nn.Module | None = None, **options: object) -> EmbeddingExtractor:
    torch.manual_seed(3)
    network = network or build_model("resnet10", num_bins=BINS, embedding_dim=16, base_width=4)
    for module in network.modules():  # statistics of a trained network are not those of a fresh one
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    front_end = build_front_end(
        backend="torch", sample_rate=RATE, num_bins=BINS, frame_length_ms=25.0, frame_shift_ms=10.0, window="hamming",
        preemphasis=0.97, low_freq=20.0, high_freq=0.0, int16_scale=True, remove_mean=True,
    )  # fmt: skip
    return EmbeddingExtractor(network, front_end, choose_device("cpu"), **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_of_a_network_no_more_than_its_contract_is_used(speech: Path) -> None:  # noqa: F811
    utterances = KaldiDir.read(speech).utterances()[:3]
    found = make_extractor(MeanFrame()).extract(utterances)
    assert found.embeddings.shape == (3, BINS)
    assert not found.failures


@pytest.mark.parametrize("workers", [0, 3])
def test_a_batch_gives_what_one_alone_gives(speech: Path, workers: int) -> None:  # noqa: F811
    utterances = KaldiDir.read(speech).utterances()
    # lengths repeat, so that batches really hold several utterances
    cut = [
        Utterance(u.utterance_id, u.speaker, u.path, 0.0, 0.3 + 0.1 * (i % 2), False) for i, u in enumerate(utterances)
    ]
    one = make_extractor(batch_size=1).extract(cut)
    many = make_extractor(batch_size=7, num_workers=workers).extract(cut)
    assert many.utterances == one.utterances == [u.utterance_id for u in cut]
    np.testing.assert_allclose(many.embeddings, one.embeddings, atol=1e-5)
    assert np.ptp(one.embeddings, axis=0).max() > 1e-2, "all embeddings are alike: nothing is compared"


@pytest.mark.parametrize("threads", [0, 2])
def test_utterances_of_about_equal_length_go_together(speech: Path, threads: int) -> None:  # noqa: F811
    """Padded, each has the embedding that it has alone, and no other bytes by the number of threads."""
    utterances = [
        Utterance(u.utterance_id, u.speaker, u.path, 0.0, 0.7 + 0.01 * (i % 3), False)
        for i, u in enumerate(KaldiDir.read(speech).utterances())
    ]
    one = make_extractor(batch_size=1).extract(utterances)
    finished: list[int] = []
    many = make_extractor(batch_size=4, threads=threads).extract(utterances, progress=finished.append)
    assert finished[0] == 4
    assert many.utterances == one.utterances
    np.testing.assert_allclose(many.embeddings, one.embeddings, atol=1e-5)
    again = make_extractor(batch_size=4, threads=1).extract(utterances)
    np.testing.assert_array_equal(again.embeddings, many.embeddings)
    assert torch.get_num_threads() == 1


def test_what_fails_on_a_thread_is_raised(speech: Path) -> None:  # noqa: F811
    class Fails(MeanFrame):
        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError("of the network")

    utterances = KaldiDir.read(speech).utterances()
    with pytest.raises(ZeroDivisionError, match="of the network"):
        make_extractor(Fails(), threads=2, batch_size=1).extract(utterances)


def test_samples_that_reach_no_further_frame_count_where_the_front_end_is_centred(speech: Path) -> None:  # noqa: F811
    """As many frames may be of a few samples more or less; what is embedded is all of them, in a batch as alone."""
    utterances = KaldiDir.read(speech).utterances()[:4]
    cut = [
        Utterance(u.utterance_id, u.speaker, u.path, 0.0, 0.4 + 0.001 * (i % 3), False)
        for i, u in enumerate(utterances)
    ]
    front_end = front_end_of(features_config({"backend": "clova", "num_bins": BINS}))
    found = EmbeddingExtractor(MeanSize(), front_end, choose_device("cpu")).extract(cut)
    for utterance, embedding in zip(cut, found.embeddings, strict=True):
        samples = read_audio(utterance.path, sample_rate=RATE, duration=utterance.duration)
        whole = front_end(torch.from_numpy(samples)[None]).abs().mean(1)[0]
        np.testing.assert_allclose(embedding, whole.numpy(), atol=1e-6)


def test_the_order_asked_for_is_kept_whatever_the_lengths(speech: Path) -> None:  # noqa: F811
    utterances = KaldiDir.read(speech).utterances()[::-1]
    forward = make_extractor().extract(utterances[::-1])
    backward = make_extractor().extract(utterances)
    assert backward.utterances == forward.utterances[::-1]
    np.testing.assert_allclose(backward.embeddings, forward.embeddings[::-1], atol=1e-5)


def test_a_segment_is_what_its_samples_are(speech: Path, tmp_path: Path) -> None:  # noqa: F811
    whole = KaldiDir.read(speech).utterances()[0]
    samples, _ = soundfile.read(whole.path, dtype="float32")
    soundfile.write(tmp_path / "cut.flac", samples[1600:6400], RATE, subtype="PCM_16")
    segment = Utterance("s", "x", whole.path, 0.1, 0.3, whole_file=False)
    alone = Utterance("a", "x", tmp_path / "cut.flac")
    embeddings = make_extractor().extract([segment, alone]).embeddings
    np.testing.assert_allclose(embeddings[0], embeddings[1], atol=1e-5)


def test_a_duration_of_the_table_does_not_cut_a_whole_file(speech: Path) -> None:  # noqa: F811
    whole = KaldiDir.read(speech).utterances()[0]
    rounded = Utterance(whole.utterance_id, whole.speaker, whole.path, 0.0, 0.2)
    expected = make_extractor().extract([whole]).embeddings
    np.testing.assert_array_equal(make_extractor().extract([rounded]).embeddings, expected)


def test_failures_are_named_and_stop_nothing(speech: Path, tmp_path: Path) -> None:  # noqa: F811
    good = KaldiDir.read(speech).utterances()[:2]
    (tmp_path / "broken.flac").write_bytes(b"no audio")
    soundfile.write(tmp_path / "short.wav", np.zeros(100), RATE)
    soundfile.write(tmp_path / "nan.wav", np.full(8000, np.nan), RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "rate.wav", np.zeros(8000), 8000)
    bad = [
        Utterance(name, "x", tmp_path / name)
        for name in ("broken.flac", "short.wav", "nan.wav", "rate.wav", "gone.wav")
    ]
    finished: list[int] = []
    extraction = make_extractor(batch_size=2).extract([good[0], *bad, good[1]], progress=finished.append)
    assert extraction.utterances == [good[0].utterance_id, good[1].utterance_id]
    assert "cannot be read as audio" in extraction.failures["broken.flac"]
    assert "shorter than one" in extraction.failures["short.wav"]
    assert "not finite" in extraction.failures["nan.wav"]
    assert "8000 Hz, expected 16000 Hz" in extraction.failures["rate.wav"]
    assert "no such file" in extraction.failures["gone.wav"]
    assert sum(finished) == 7


def test_resampling_is_done_where_it_is_allowed(tmp_path: Path) -> None:
    voice = synthesise_voice(0, 0, 0.8)
    soundfile.write(tmp_path / "a.wav", voice[::2], RATE // 2)
    utterance = Utterance("a", "x", tmp_path / "a.wav")
    assert not make_extractor().extract([utterance]).utterances
    extraction = make_extractor(resample=True).extract([utterance])
    assert extraction.utterances == ["a"]
    assert extraction.audio_seconds == pytest.approx(0.8, abs=0.01)


def test_the_real_time_factor_is_work_over_audio(speech: Path) -> None:  # noqa: F811
    utterances = KaldiDir.read(speech).utterances()[:4]
    extraction = make_extractor().extract(utterances)
    seconds = sum(soundfile.info(utterance.path).duration for utterance in utterances)
    assert extraction.audio_seconds == pytest.approx(seconds)
    assert extraction.real_time_factor == pytest.approx(extraction.wall_seconds / seconds)


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_network_is_put_back(speech: Path, training: bool) -> None:  # noqa: F811
    extractor = make_extractor()
    extractor.network.train(training)
    before = {name: buffer.clone() for name, buffer in extractor.network.named_buffers()}
    extractor.extract(KaldiDir.read(speech).utterances()[:2])
    assert extractor.network.training is training
    assert all(torch.equal(buffer, before[name]) for name, buffer in extractor.network.named_buffers())


def test_lower_precision_stays_close(speech: Path) -> None:  # noqa: F811
    utterances = KaldiDir.read(speech).utterances()[:4]
    full = make_extractor().extract(utterances).embeddings
    half = make_extractor(precision="bf16").extract(utterances).embeddings
    assert half.dtype == np.float32
    assert not np.array_equal(full, half)
    cosine = (full * half).sum(1) / np.linalg.norm(full, axis=1) / np.linalg.norm(half, axis=1)
    assert (cosine > 0.99).all()


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"num_workers": -1}, {"threads": -1}, {"precision": "int4"}])
def test_impossible_settings_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UserError, match="expected"):
        make_extractor(**options)


def test_a_table_and_a_header_that_lie_about_the_length_do_no_harm(speech: Path) -> None:  # noqa: F811
    """A segment that goes beyond its file is as long as the file, and in no batch with those of its stated length."""
    whole = KaldiDir.read(speech).utterances()[:3]
    beyond = [Utterance(u.utterance_id, u.speaker, u.path, 0.1, 5.0, whole_file=False) for u in whole]
    exact = [
        Utterance(u.utterance_id, u.speaker, u.path, 0.1, soundfile.info(u.path).duration - 0.1, whole_file=False)
        for u in whole
    ]
    expected = make_extractor(batch_size=1).extract(exact).embeddings
    np.testing.assert_allclose(make_extractor().extract(beyond).embeddings, expected, atol=1e-5)


def test_progress_comes_batch_by_batch(speech: Path) -> None:  # noqa: F811
    utterances = KaldiDir.read(speech).utterances()[:7]
    alike = [Utterance(u.utterance_id, u.speaker, u.path, 0.0, 0.3, whole_file=False) for u in utterances]
    finished: list[int] = []
    make_extractor(batch_size=3).extract(alike, progress=finished.append)
    assert finished == [3, 3, 1]


def test_of_no_utterance_there_is_no_embedding() -> None:
    extraction = make_extractor().extract([])
    assert (extraction.utterances, extraction.failures, extraction.embeddings.size) == ([], {}, 0)
    assert np.isnan(extraction.real_time_factor)


def test_one_that_is_too_long_costs_its_own_embedding_alone(speech: Path, tmp_path: Path) -> None:  # noqa: F811
    good = KaldiDir.read(speech).utterances()[:2]
    soundfile.write(tmp_path / "long.wav", np.tile(synthesise_voice(0, 0, 1.0), 9), RATE)
    extractor = make_extractor(MeanFrame(), batch_seconds=2.0)
    extractor.fit_into(in_all(5e6), PassMemory(0.0, 0.0, 1e6))
    found = extractor.extract([good[0], Utterance("long", "x", tmp_path / "long.wav"), good[1]])
    assert found.utterances == [good[0].utterance_id, good[1].utterance_id]
    assert found.failures["long"].startswith(f"{tmp_path}/long.wav: one utterance of 9.0 s is predicted to need ")


def test_a_recording_that_the_machine_cannot_hold_fails_alone(speech: Path, monkeypatch) -> None:  # noqa: F811
    good = KaldiDir.read(speech).utterances()[:2]

    def read(path: Path, **options: object) -> np.ndarray:
        if path == good[0].path:
            raise MemoryError
        return read_audio(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(extraction, "read_audio", read)
    found = make_extractor(MeanFrame()).extract(good)
    assert found.utterances == [good[1].utterance_id]
    assert "does not fit into the memory of this machine; cut it" in found.failures[good[0].utterance_id]
