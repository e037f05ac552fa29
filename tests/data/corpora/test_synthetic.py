from __future__ import annotations

import hashlib
import itertools
import os
import random
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from svtoolkit.data.corpora import espeak
from svtoolkit.data.corpora.espeak import Synthesiser, open_synthesiser
from svtoolkit.data.corpora.sentences import compose_sentences
from svtoolkit.data.corpora.simulated_channels import CHANNELS, filter_band, reverberate, transmit
from svtoolkit.data.corpora.synthetic import (
    assign_channels,
    draw_voice,
    generate_synthetic_corpus,
    make_generator,
    write_variant,
)
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError

try:
    import espeakng_loader
except ImportError:
    espeakng_loader = None

needs_espeak = pytest.mark.skipif(espeakng_loader is None, reason="espeakng-loader (extra demo) is not installed")

SPEAKERS = ["syn001", "syn002", "syn003", "syn004"]
TINY = {"speakers": 4, "eval_speakers": 2, "utterances_per_speaker": 3, "seed": 5}
SENTENCE = "Many more men may win money on a rainy morning."


def hash_files(out: Path) -> dict[str, str]:
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.rglob("*.flac")}


def measure_pitch(samples: np.ndarray, rate: int) -> float:
    """Median over loud frames of the lag (60 to 400 Hz) with the highest normalised autocorrelation, in Hz."""
    width, pitches = rate // 20, []
    threshold = np.sqrt(np.mean(samples**2))
    for start in range(0, len(samples) - 2 * width, rate // 50):
        frame = samples[start : start + width]
        if np.sqrt(np.mean(frame**2)) < threshold:
            continue
        lags = np.arange(rate // 400, rate // 60)
        shifted = np.stack([samples[start + lag : start + lag + width] for lag in lags])
        score = shifted @ frame / np.linalg.norm(shifted, axis=1)
        # The first of the peaks that are about as high: their multiples fit a periodic signal as well.
        pitches.append(rate / lags[np.flatnonzero(score > 0.95 * score.max())[0]])
    return float(np.median(pitches))


def measure_power(samples: np.ndarray, rate: int, low: float, high: float) -> float:
    power = np.abs(np.fft.rfft(samples)) ** 2
    hertz = np.fft.rfftfreq(len(samples), 1 / rate)
    return float(power[(hertz >= low) & (hertz < high)].sum() / len(samples))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KaldiDir, KaldiDir]:
    out = tmp_path_factory.mktemp("synthetic")
    return out, *generate_synthetic_corpus(out, **TINY)


@pytest.fixture(scope="module")
def synthesiser() -> Iterator[Synthesiser]:
    with open_synthesiser() as opened:
        yield opened


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
def test_several_processes_write_the_same_bytes(corpus: tuple[Path, KaldiDir, KaldiDir], tmp_path: Path) -> None:
    counts: list[int] = []
    training, evaluation = generate_synthetic_corpus(tmp_path, **TINY, jobs=2, progress=counts.append)
    assert hash_files(tmp_path) == hash_files(corpus[0])
    assert counts == [3, 3, 3, 3]
    assert (training.utt2dur, evaluation.utt2dur) == (corpus[1].utt2dur, corpus[2].utt2dur)
    assert (tmp_path / "utt2channel").read_bytes() == (corpus[0] / "utt2channel").read_bytes()


@needs_espeak
def test_an_interrupted_corpus_is_completed_to_the_same_bytes(
    corpus: tuple[Path, KaldiDir, KaldiDir], tmp_path: Path
) -> None:
    def interrupt(finished: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_synthetic_corpus(tmp_path, **TINY, progress=interrupt)
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
    with pytest.raises(UserError, match=r"install with `pip install svtoolkit\[demo\]`"):
        generate_synthetic_corpus(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@needs_espeak
def test_a_broken_installation_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "libespeak-ng.so"
    monkeypatch.setattr(espeakng_loader, "get_library_path", lambda: str(library))
    with pytest.raises(UserError, match=r"libespeak-ng\.so: missing; reinstall"), open_synthesiser():
        pass
    library.write_text("no library")
    with open_synthesiser() as broken, pytest.raises(UserError, match=r"cannot be loaded .*reinstall espeakng-loader"):
        broken.speak(SENTENCE, language="en", variant="")


@needs_espeak
def test_incomplete_data_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(espeak, "_copy_english", lambda installed, copy: (copy / "voices" / "!v").mkdir(parents=True))
    with open_synthesiser() as empty, pytest.raises(UserError, match="cannot read the copy of its data"):
        empty.speak(SENTENCE, language="en", variant="")


@needs_espeak
def test_too_long_a_temporary_folder_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 130)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(UserError, match=r"takes at most 120; set TMPDIR to a shorter one"), open_synthesiser():
        pass


@needs_espeak
def test_the_longest_temporary_folder_works(monkeypatch: pytest.MonkeyPatch, tmp_path_factory) -> None:
    base = tmp_path_factory.getbasetemp()
    missing = espeak.LONGEST_TEMPORARY_FOLDER - len(os.fsencode(base)) - 1
    if missing < 1:
        pytest.skip(f"the folder of temporary files, {base}, has too long a path itself")
    folder = base / ("x" * missing)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with open_synthesiser() as opened:
        assert len(opened.speak("Hello there.", language="en", variant="")[0]) > 5000


@needs_espeak
def test_speech_does_not_depend_on_what_was_spoken_before(synthesiser: Synthesiser) -> None:
    arguments = {"language": "en-us", "variant": "flutter 20\nbreath 20 20 20 20", "seed": 3}
    first, rate = synthesiser.speak(SENTENCE, **arguments)
    synthesiser.speak("Something else altogether.", language="en-029", variant="echo 100 50")
    second, _ = synthesiser.speak(SENTENCE, **arguments)
    assert rate == 22050
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, synthesiser.speak(SENTENCE, **arguments | {"seed": 4})[0])


@needs_espeak
def test_parameters_do_what_they_say(synthesiser: Synthesiser) -> None:
    def speak(**changes: object) -> np.ndarray:
        return synthesiser.speak(SENTENCE, **{"language": "en-us", "variant": "flutter 0", "volume": 30} | changes)[0]

    plain = speak()
    assert len(speak(words_per_minute=250)) < 0.8 * len(plain) < 0.64 * len(speak(words_per_minute=110))
    assert np.std(speak(volume=15)) == pytest.approx(np.std(plain) / 2, rel=0.05)
    assert measure_pitch(speak(pitch=70), 22050) > 1.1 * measure_pitch(plain, 22050)
    assert not np.array_equal(speak(pitch_range=20), plain)
    assert not np.array_equal(speak(language="en-gb-scotland"), plain)


@needs_espeak
def test_what_espeak_cannot_speak_is_refused(synthesiser: Synthesiser) -> None:
    with pytest.raises(ValueError, match="no English voice named 'en-xx'"):
        synthesiser.speak(SENTENCE, language="en-xx", variant="")
    with pytest.raises(ValueError, match="made no sound of the text ''"):
        synthesiser.speak("", language="en", variant="")


@needs_espeak
def test_an_interrupt_waits_for_the_end_of_the_sentence(
    synthesiser: Synthesiser, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[int] = []
    collect = espeak._collect

    def press_ctrl_c(chunks: list[bytes], wav: object, count: int) -> int:
        if not collected:
            os.kill(os.getpid(), signal.SIGINT)
        collected.append(count)
        return collect(chunks, wav, count)

    reference, _ = synthesiser.speak(SENTENCE, language="en", variant="")
    monkeypatch.setattr(espeak, "_collect", press_ctrl_c)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            synthesiser.speak(SENTENCE, language="en", variant="")
    finally:
        signal.signal(signal.SIGINT, previous)
    assert sum(collected) == len(reference)


@needs_espeak
@pytest.mark.parametrize("hertz", [95.0, 140.0, 220.0])
def test_a_voice_has_the_pitch_it_was_given(hertz: float, synthesiser: Synthesiser) -> None:
    voice = draw_voice(random.Random(1))
    variant = re.sub(
        r"pitch .*", f"pitch {round(hertz * 0.95)} {round(hertz * 1.05)}", write_variant(voice, random.Random(1))
    )
    samples, rate = synthesiser.speak(SENTENCE, language="en", variant=variant, volume=30)
    assert measure_pitch(samples, rate) == pytest.approx(hertz, rel=0.12)


@needs_espeak
def test_a_shorter_vocal_tract_moves_the_spectrum_up(synthesiser: Synthesiser) -> None:
    def centroid(percent: int) -> float:
        formants = "\n".join(f"formant {number} {percent} 100 100" for number in range(1, 9))
        samples, rate = synthesiser.speak("ah", language="en-us", variant=f"flutter 0\n{formants}", volume=30)
        power = np.abs(np.fft.rfft(samples)) ** 2
        hertz = np.fft.rfftfreq(len(samples), 1 / rate)
        band = (hertz > 300) & (hertz < 4000)
        return float((power * hertz)[band].sum() / power[band].sum())

    assert centroid(85) < 0.95 * centroid(100)
    assert centroid(100) < 0.95 * centroid(115)


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


def test_sentences_are_many_and_whole() -> None:
    sentences = list(itertools.islice(compose_sentences(random.Random(0)), 2000))
    assert len(set(sentences)) == 2000
    assert sentences == list(itertools.islice(compose_sentences(random.Random(0)), 2000))
    others = set(itertools.islice(compose_sentences(random.Random(1)), 2000))
    assert len(others & set(sentences)) < 100
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z][A-Za-z ,]+[.?]", sentence)
        assert 7 <= len(sentence.split()) <= 15
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", sentence)


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_channel_keeps_length_and_lets_the_speech_band_through(channel: str) -> None:
    rate, time = 16000, np.arange(20001) / 16000
    speech = (0.1 * np.sin(2 * np.pi * 1000 * time) * (1 + np.sin(2 * np.pi * 4 * time))).astype(np.float32)
    received = transmit(speech, rate, channel, random.Random(1))
    assert (received.shape, received.dtype) == (speech.shape, np.float32)
    assert np.corrcoef(received, speech)[0, 1] > (0.98 if channel == "wide" else 0.7)
    assert -28.1 < 20 * np.log10(np.sqrt(np.mean(received.astype(float) ** 2))) < -19.9
    assert not np.array_equal(received, transmit(speech, rate, channel, random.Random(2)))
    np.testing.assert_array_equal(received, transmit(speech, rate, channel, random.Random(1)))


def test_a_channel_does_not_clip_peaky_speech() -> None:
    speech = np.full(16000, 1e-4, dtype=np.float32)
    speech[8000] = 1.0
    assert np.abs(transmit(speech, 16000, "wide", random.Random(0))).max() <= 0.9001


@pytest.mark.parametrize(
    ("hertz", "decibels"), [(100, -38.17), (300, -3.01), (1000, 0.0), (3400, -3.01), (6800, -24.1)]
)
def test_the_band_has_the_magnitude_of_butterworth_filters(hertz: float, decibels: float) -> None:
    time = np.arange(32000) / 16000
    tone = np.sin(2 * np.pi * hertz * time)
    passed = filter_band(tone, 16000, (300.0, 3400.0), 0.0)[8000:24000]
    assert 20 * np.log10(np.std(passed) / np.std(tone)) == pytest.approx(decibels, abs=0.1)


def test_the_tilt_is_in_decibels_an_octave() -> None:
    time = np.arange(32000) / 16000
    levels = [
        np.std(filter_band(np.sin(2 * np.pi * hertz * time), 16000, (1.0, 1e5), 2.0)[8000:24000])
        for hertz in (1000, 4000)
    ]
    assert 20 * np.log10(levels[1] / levels[0]) == pytest.approx(4.0, abs=0.05)


def test_a_room_keeps_the_direct_sound_and_decays_by_60_decibels() -> None:
    impulse = np.zeros(8000)
    impulse[0] = 1.0
    response = reverberate(impulse, 16000, np.random.default_rng(0), seconds=0.25, ratio_db=6.0)
    assert response[0] == pytest.approx(1.0)
    assert 10 * np.log10(np.sum(response[1:] ** 2)) == pytest.approx(-6.0, abs=0.1)
    early, late = np.mean(response[1:401] ** 2), np.mean(response[3600:4000] ** 2)
    assert 10 * np.log10(late / early) == pytest.approx(-54.0, abs=2.0)
    np.testing.assert_allclose(response[4000:], 0, atol=1e-12)
