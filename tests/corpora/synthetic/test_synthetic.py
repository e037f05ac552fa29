from __future__ import annotations

import contextlib
import hashlib
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from espeak_material import SENTENCE, measure_pitch, needs_espeak

from svtoolkit.corpora.synthetic.corpus import (
    assign_channels,
    draw_voice,
    make_generator,
    prepare_synthetic,
    write_variant,
)
from svtoolkit.corpora.synthetic.espeak import Synthesiser
from svtoolkit.corpora.synthetic.simulated_channels import CHANNELS
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError

SPEAKERS = ["syn001", "syn002", "syn003", "syn004"]
TINY = {"speakers": 4, "eval_speakers": 2, "utterances_per_speaker": 3, "seed": 5}


def generate_synthetic_corpus(out: Path, **numbers: int) -> tuple[KaldiDir, KaldiDir]:
    prepared = prepare_synthetic(out=out, **numbers)
    assert prepared.evaluation is not None
    return prepared.kaldi_dir, prepared.evaluation


def show_progress_to(update: Callable[[int], object], monkeypatch: pytest.MonkeyPatch) -> None:
    bar = contextlib.nullcontext(SimpleNamespace(update=update))
    monkeypatch.setattr("svtoolkit.corpora.synthetic.corpus.show_progress", lambda *_: bar)


def hash_files(out: Path) -> dict[str, str]:
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.rglob("*.flac")}


def measure_power(samples: np.ndarray, rate: int, low: float, high: float) -> float:
    power = np.abs(np.fft.rfft(samples)) ** 2
    hertz = np.fft.rfftfreq(len(samples), 1 / rate)
    return float(power[(hertz >= low) & (hertz < high)].sum() / len(samples))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KaldiDir, KaldiDir]:
    out = tmp_path_factory.mktemp("synthetic")
    return out, *generate_synthetic_corpus(out, **TINY)


@needs_espeak
def test_both_sets_list_every_file_and_share_no_speaker(corpus: tuple[Path, KaldiDir, KaldiDir]) -> None:
    out, training, evaluation = corpus
    assert training.speakers == SPEAKERS[:2]
    assert evaluation.speakers == SPEAKERS[2:]
    for kaldi_dir in (training, evaluation):
        assert list(kaldi_dir.wav_scp) == [f"{speaker}-{n:04d}" for speaker in kaldi_dir.speakers for n in (1, 2, 3)]
        for utterance in kaldi_dir.utterances():
            assert utterance.path == out / "wav" / utterance.speaker / f"{utterance.utterance_id}.flac"
            header = soundfile.info(str(utterance.path))
            assert (header.samplerate, header.channels, header.format) == (16000, 1, "FLAC")
            assert header.subtype == "PCM_16"
            assert utterance.duration == pytest.approx(header.frames / 16000)
            assert 1.5 < header.duration < 6
    assert len(list(out.rglob("*.flac"))) == 12


@needs_espeak
def test_written_directories_are_without_fault(corpus: tuple[Path, KaldiDir, KaldiDir], tmp_path: Path) -> None:
    corpus[1].write(tmp_path)
    again = KaldiDir.read(tmp_path)
    assert again.utt2spk == corpus[1].utt2spk
    assert all(utterance.path.is_file() for utterance in again.utterances())


@needs_espeak
def test_levels_are_those_of_recordings(corpus: tuple[Path, KaldiDir, KaldiDir]) -> None:
    for path in corpus[0].rglob("*.flac"):
        samples, rate = soundfile.read(path)
        level = np.sqrt(np.mean(samples**2))
        assert -30 < 20 * np.log10(level) < -19
        assert 4 * level < np.abs(samples).max() < 0.91
        assert abs(samples.mean()) < 0.02 * level
        frames = samples[: len(samples) // 160 * 160].reshape(-1, 160)
        loud = np.flatnonzero(np.sqrt(np.mean(frames**2, axis=1)) > 0.3 * level) * 160 / rate
        assert loud[0] < 0.3
        assert len(samples) / rate - loud[-1] < 0.5


@needs_espeak
def test_every_speaker_is_heard_over_both_channels(corpus: tuple[Path, KaldiDir, KaldiDir]) -> None:
    out, training, evaluation = corpus
    table = dict(line.split() for line in (out / "utt2channel").read_text().splitlines())
    assert sorted(table) == sorted([*training.utt2spk, *evaluation.utt2spk])
    high = {channel: [] for channel in CHANNELS}
    for utterance, channel in table.items():
        samples, rate = soundfile.read(out / "wav" / utterance[:6] / f"{utterance}.flac")
        high[channel].append(measure_power(samples, rate, 5000, 7500) / measure_power(samples, rate, 0, 8000))
    assert max(high["narrow"]) < 0.5 * np.median(high["wide"])
    for speaker in SPEAKERS:
        assert {table[f"{speaker}-000{n}"] for n in (1, 2, 3)} == set(CHANNELS)


def test_each_channel_carries_half_of_a_speaker() -> None:
    starts = set()
    for speaker in range(1, 21):
        channels = assign_channels(speaker, 0, 20)
        assert channels.count("wide") == channels.count("narrow") == 10
        assert assign_channels(speaker, 0, 7) == channels[:7]
        starts.add(channels[0])
    assert starts == set(CHANNELS)


@needs_espeak
def test_several_processes_write_the_same_bytes(
    corpus: tuple[Path, KaldiDir, KaldiDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    show_progress_to(counts.append, monkeypatch)
    training, evaluation = generate_synthetic_corpus(tmp_path, **TINY, jobs=2)
    assert hash_files(tmp_path) == hash_files(corpus[0])
    assert counts == [3, 3, 3, 3]
    assert (training.utt2dur, evaluation.utt2dur) == (corpus[1].utt2dur, corpus[2].utt2dur)
    assert (tmp_path / "utt2channel").read_bytes() == (corpus[0] / "utt2channel").read_bytes()


@needs_espeak
def test_an_interrupted_corpus_is_completed_to_the_same_bytes(
    corpus: tuple[Path, KaldiDir, KaldiDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(finished: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        show_progress_to(interrupt, patched)
        with pytest.raises(KeyboardInterrupt):
            generate_synthetic_corpus(tmp_path, **TINY)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.flac")}
    assert len(kept) == 3
    removed = tmp_path / "wav" / "syn001" / "syn001-0002.flac"
    removed.unlink()
    generate_synthetic_corpus(tmp_path, **TINY)
    assert hash_files(tmp_path) == hash_files(corpus[0])
    assert {path: path.stat().st_mtime_ns for path in kept if path != removed}.items() <= kept.items()
    assert not list(tmp_path.rglob(".*.tmp"))


@needs_espeak
def test_an_utterance_depends_on_seed_and_name_alone(corpus: tuple[Path, KaldiDir, KaldiDir], tmp_path: Path) -> None:
    larger = {"speakers": 5, "eval_speakers": 2, "utterances_per_speaker": 4}
    training, _ = generate_synthetic_corpus(tmp_path / "larger", **larger, seed=5)
    assert training.speakers == SPEAKERS[:3]
    assert hash_files(corpus[0]).items() <= hash_files(tmp_path / "larger").items()
    generate_synthetic_corpus(tmp_path / "other", **TINY | {"seed": 6})
    assert not set(hash_files(corpus[0]).values()) & set(hash_files(tmp_path / "other").values())


@needs_espeak
def test_a_folder_of_another_corpus_is_refused(corpus: tuple[Path, KaldiDir, KaldiDir]) -> None:
    with pytest.raises(UserError, match=r"synthetic\.json: the folder holds a corpus made of .*\"seed\": 5.*choose"):
        generate_synthetic_corpus(corpus[0], **TINY | {"seed": 6})
    with pytest.raises(UserError, match=r"now asked for .*\"sample_rate\": 8000"):
        generate_synthetic_corpus(corpus[0], **TINY, sample_rate=8000)


@needs_espeak
def test_another_sample_rate(tmp_path: Path) -> None:
    training, _ = generate_synthetic_corpus(tmp_path, **TINY | {"utterances_per_speaker": 2}, sample_rate=8000)
    for utterance in training.utterances():
        header = soundfile.info(str(utterance.path))
        assert header.samplerate == 8000
        assert utterance.duration == pytest.approx(header.frames / 8000)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (
            {"utterances_per_speaker": 1},
            "utterances_per_speaker=1: the synthetic corpus needs utterances_per_speaker=2",
        ),
        ({"eval_speakers": 0}, "eval_speakers=0: the synthetic corpus needs eval_speakers=2 or more"),
        ({"sample_rate": 4000}, "sample_rate=4000: the synthetic corpus needs sample_rate=8000"),
        ({"jobs": 0}, "jobs=0: the synthetic corpus needs jobs=1"),
        ({"speakers": 3, "eval_speakers": 2}, "eval_speakers=2 are for evaluation: .* raise speakers to 4"),
    ],
)
def test_impossible_numbers_are_refused(numbers: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        generate_synthetic_corpus(tmp_path / "out", **numbers)
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(UserError, match=r"install with `pip install espeakng-loader`"):
        generate_synthetic_corpus(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@needs_espeak
@pytest.mark.parametrize("hertz", [95.0, 140.0, 220.0])
def test_a_voice_has_the_pitch_it_was_given(hertz: float, synthesiser: Synthesiser) -> None:
    voice = draw_voice(random.Random(1))
    variant = re.sub(
        r"pitch .*", f"pitch {round(hertz * 0.95)} {round(hertz * 1.05)}", write_variant(voice, random.Random(1))
    )
    samples, rate = synthesiser.speak(SENTENCE, language="en", variant=variant, volume=30)
    assert measure_pitch(samples, rate) == pytest.approx(hertz, rel=0.12)


def test_voices_differ_and_utterances_of_one_vary_a_little() -> None:
    voices = [draw_voice(make_generator(0, number, "voice")) for number in range(60)]
    assert len(set(voices)) == 60
    assert {voice.accent for voice in voices} >= {"en", "en-us"}
    assert min(voice.pitch for voice in voices) < 110 < 220 < max(voice.pitch for voice in voices)
    second_formants = [voice.formants[2][0] for voice in voices]
    days = [
        float(re.search(r"formant 2 (\d+)", write_variant(voices[0], random.Random(day)))[1]) / 100 for day in range(60)
    ]
    assert 2 * np.std(days) < np.std(second_formants)
    assert np.mean(days) == pytest.approx(second_formants[0], rel=0.02)
