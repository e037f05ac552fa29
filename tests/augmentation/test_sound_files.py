"""Libraries: what they hold, what they refuse, and that they decode no more than is asked for."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import soundfile
from sounds import RATE, decaying, hiss, noise_utterances, shared_utterances, small_noises, utterance, write_sound

from svtoolkit.augmentation import impulse_responses, sound_files
from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.noise import NoiseLibrary
from svtoolkit.augmentation.sound_files import SPARE_SAMPLES
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.errors import UserError


def test_categories_are_the_speakers_of_the_directory(tmp_path):
    lengths = {"speech": [0.4], "noise": [0.5, 1.25], "music": [2.0]}
    library = NoiseLibrary.build(noise_utterances(tmp_path, lengths), jobs=2)
    assert list(library.categories) == ["noise", "music", "speech"]
    for category, expected in lengths.items():
        files = library.categories[category]
        assert files.seconds.tolist() == expected
        assert files.offsets.tolist() == [0.0] * len(expected)
        assert [path.rpartition("/")[2] for path in files.paths] == [
            f"{category}-{n}.wav" for n in range(len(expected))
        ]


def test_a_category_that_does_not_occur_is_not_there(tmp_path):
    library = NoiseLibrary.build(noise_utterances(tmp_path, {"music": [0.3]}))
    assert list(library.categories) == ["music"]


def test_it_is_built_from_a_data_directory(tmp_path):
    utterances = noise_utterances(tmp_path / "audio", {"noise": [0.5], "speech": [0.75]})
    KaldiDir(
        wav_scp={u.utterance_id: str(u.path) for u in utterances},
        utt2spk={u.utterance_id: u.speaker for u in utterances},
    ).write(tmp_path / "data")
    library = NoiseLibrary.build(KaldiDir.read(tmp_path / "data").utterances())
    assert {name: files.seconds.tolist() for name, files in library.categories.items()} == {
        "noise": [0.5],
        "speech": [0.75],
    }


def test_shards_are_taken_as_files_are(tmp_path):
    utterances = noise_utterances(tmp_path / "audio", {"noise": [0.5], "speech": [0.75]})
    listed = KaldiDir(
        wav_scp={u.utterance_id: str(u.path) for u in utterances},
        utt2spk={u.utterance_id: u.speaker for u in utterances},
    )
    write_shards(listed, tmp_path / "shards", per_shard=1, format="original")
    files = NoiseLibrary.build(listed.utterances())
    shards = NoiseLibrary.build(KaldiDir.read(tmp_path / "shards").utterances())
    assert shards.fingerprint() == files.fingerprint()
    ours, theirs = (library.categories["speech"].read(0, 0.25, 1000, RATE) for library in (shards, files))
    np.testing.assert_array_equal(ours, theirs)
    rirs = ImpulseLibrary.build(KaldiDir.read(tmp_path / "shards").utterances())
    np.testing.assert_array_equal(rirs.response(0, RATE), ImpulseLibrary.build(listed.utterances()).response(0, RATE))
    (tmp_path / "shards" / "shard-000000.tar").unlink()
    assert "there is no file" in refused(ImpulseLibrary.build, KaldiDir.read(tmp_path / "shards").utterances())


def test_durations_of_the_tables_are_believed_and_others_measured(tmp_path, monkeypatch):
    path = write_sound(tmp_path, "long", hiss(RATE))
    parts = [
        utterance(path, "noise", duration=0.25),
        utterance(path, "noise", offset=0.5, duration=0.2, whole_file=False),
        utterance(path, "noise", offset=0.75, whole_file=False),
    ]
    measured = []
    original = sound_files.measure_durations
    monkeypatch.setattr(
        sound_files, "measure_durations", lambda paths, jobs: measured.extend(paths) or original(paths, jobs=jobs)
    )
    files = NoiseLibrary.build(parts).categories["noise"]
    assert files.seconds.tolist() == [0.25, 0.2, 0.25]
    assert files.offsets.tolist() == [0.0, 0.5, 0.75]
    assert measured == [2]


def test_a_slice_is_what_stands_in_the_file(tmp_path):
    whole = hiss(RATE)
    path = write_sound(tmp_path, "long", whole)
    files = NoiseLibrary.build([utterance(path, "noise", offset=0.25, duration=0.5, whole_file=False)])
    piece = files.categories["noise"].read(0, 0.125, 1000, RATE)
    assert piece.dtype == np.float32
    np.testing.assert_array_equal(piece, whole[6000:7000])
    # Of the stretch only 0.5 s are its own: behind them it begins again, at the start of the slice.
    repeated = files.categories["noise"].read(0, 0.125, 20_000, RATE)
    np.testing.assert_array_equal(repeated, np.tile(whole[6000:12_000], 4)[:20_000])


def test_only_the_slice_is_decoded(tmp_path, decoded):
    files = NoiseLibrary.build(noise_utterances(tmp_path, {"noise": [4.0]})).categories["noise"]
    files.read(0, 1.7, 3000, RATE)
    assert decoded == [3000 + SPARE_SAMPLES]


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000])
def test_a_file_of_another_rate_is_converted_and_long_enough(tmp_path, rate, monkeypatch):
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(2 * rate) / rate)
    files = NoiseLibrary.build([utterance(write_sound(tmp_path, "tone", tone, rate), "music")]).categories["music"]
    monkeypatch.setattr(sound_files.np, "resize", None)  # not one sample is repeated
    for samples in range(4000, 4012):
        piece = files.read(0, 0.64, samples, RATE)
        assert piece.shape == (samples,)
        expected = 0.5 * np.sin(2 * np.pi * 440 * (0.64 + np.arange(samples) / RATE))
        np.testing.assert_allclose(piece[300:-300], expected[300:-300], atol=0.01)


def test_the_first_of_several_channels_is_taken(tmp_path):
    stereo = np.stack([hiss(2000, 1), hiss(2000, 2)], axis=1)
    files = NoiseLibrary.build([utterance(write_sound(tmp_path, "stereo", stereo), "noise")]).categories["noise"]
    np.testing.assert_array_equal(files.read(0, 0.0, 2000, RATE), stereo[:, 0])


def test_a_response_is_ready_for_use_and_kept(tmp_path):
    path = write_sound(tmp_path, "rir", decaying(5000, delay=300))
    library = ImpulseLibrary.build([utterance(path, "small")])
    assert len(library) == 1
    response = library.response(0, RATE)
    assert np.abs(response).argmax() == 0
    assert np.sum(response.astype(np.float64) ** 2) == pytest.approx(1.0, abs=1e-6)
    assert library.response(0, RATE) is response
    assert len(library.response(0, 8000)) == pytest.approx(len(response) / 2, rel=0.05)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(library)).response(0, RATE), response)


def test_a_large_library_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(impulse_responses, "CACHED_RESPONSES", 1)
    paths = [write_sound(tmp_path, f"rir-{number}", decaying(500, number)) for number in range(2)]
    library = ImpulseLibrary.build([utterance(path, "small") for path in paths])
    first, again = library.response(1, RATE), library.response(1, RATE)
    assert first is not again
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("extension", ["flac", "wav"])
def test_a_large_library_decodes_what_it_uses_of_a_response(extension, tmp_path, monkeypatch, decoded):
    monkeypatch.setattr(impulse_responses, "CACHED_RESPONSES", 0)
    response = decaying(30_000, 3, delay=777)
    path = tmp_path / f"rir.{extension}"
    soundfile.write(path, response, RATE, subtype="PCM_16")
    library = ImpulseLibrary.build([utterance(path, "small")])
    decoded.clear()  # the end of the file, without which its length is not believed
    first, again = library.response(0, RATE), library.response(0, RATE)
    np.testing.assert_array_equal(first, again)
    assert len(first) < 12_000
    assert decoded == [len(response), len(first) + SPARE_SAMPLES]
    # A slice of another rate, or of a file among others, might begin a fraction of a sample off: all of it again.
    decoded.clear()
    np.testing.assert_array_equal(library.response(0, 8000), library.response(0, 8000))
    assert decoded == [len(response)] * 2


def test_the_fingerprint_is_of_what_draws_mean(tmp_path):
    here, there = small_noises(tmp_path / "here"), small_noises(tmp_path / "there")
    assert here.fingerprint() == there.fingerprint()
    changed = NoiseLibrary.build(noise_utterances(tmp_path / "here", {"noise": [0.5, 1.0, 2.001]}))
    assert changed.categories["noise"].fingerprint() != here.categories["noise"].fingerprint()
    assert NoiseLibrary(dict(list(here.categories.items())[:2])).fingerprint() != here.fingerprint()


def refused(function, *args) -> str:
    with pytest.raises(UserError) as caught:
        function(*args)
    return str(caught.value)


def test_another_category_is_refused(tmp_path):
    path = write_sound(tmp_path, "id10270-1", hiss(2000))
    assert refused(NoiseLibrary.build, [utterance(path, "id10270")]) == (
        "augment.noise: utterance 'id10270-1' is of the category (speaker) 'id10270', expected noise, music, speech; "
        "give what `svt prepare corpus=musan` makes, or `svt prepare corpus=noise` of noises of your own"
    )


def test_an_empty_directory_is_refused():
    assert refused(NoiseLibrary.build, []).startswith("augment.noise: the data directory holds no utterance")
    assert refused(ImpulseLibrary.build, []).startswith("augment.reverberation: the data directory holds no utterance")


@pytest.mark.parametrize("duration", [None, 2.0])
def test_files_that_are_missing_are_refused(tmp_path, duration):
    here = utterance(write_sound(tmp_path, "here", hiss(2000)), "noise")
    gone = utterance(tmp_path / "gone.wav", "noise", duration=duration)
    message = refused(NoiseLibrary.build, [here, gone])
    assert str(tmp_path / "gone.wav") in message
    assert "1 of " in message


def test_files_too_short_or_long_to_be_what_they_should_are_refused(tmp_path):
    click = utterance(write_sound(tmp_path, "click", hiss(800)), "noise")
    assert refused(NoiseLibrary.build, [click]) == (
        f"augment.noise: 'click' ({tmp_path / 'click.wav'}) is 0.05 s long, expected 0.1 s or more; "
        "drop it from the data directory"
    )
    assert len(ImpulseLibrary.build([click])) == 1
    tap = utterance(write_sound(tmp_path, "tap", hiss(4)), "real")
    assert "is 0.00025 s long, expected 0.001 s or more" in refused(ImpulseLibrary.build, [tap])
    song = utterance(tmp_path / "click.wav", "music", duration=200.0)
    assert "is 200 s long, expected 30 s or less" in refused(ImpulseLibrary.build, [song])


def test_a_response_of_silence_is_refused_when_it_is_used(tmp_path):
    path = write_sound(tmp_path, "anechoic", np.zeros(500))
    library = ImpulseLibrary.build([utterance(path, "small")])
    assert refused(library.response, 0, RATE) == (
        f"{path}: the impulse response is empty, silent or not finite; re-create the file or drop it"
    )


def test_a_noise_that_cannot_be_decoded_is_refused_when_it_is_used(tmp_path):
    path = tmp_path / "broken.flac"
    soundfile.write(path, hiss(4 * RATE), RATE)
    content = bytearray(path.read_bytes())
    begin, end = len(content) // 4, len(content) * 3 // 4
    content[begin:end] = bytes(end - begin)
    path.write_bytes(content)
    files = NoiseLibrary.build([utterance(path, "noise")]).categories["noise"]
    assert refused(files.read, 0, 2.0, 1000, RATE).startswith(f"{path}: ")


def test_a_noise_that_is_cut_off_is_refused_at_once(tmp_path):
    path = tmp_path / "cut.flac"
    soundfile.write(path, hiss(4 * RATE), RATE)
    os.truncate(path, path.stat().st_size // 2)
    assert "1 of 1 audio files cannot be used: " in refused(NoiseLibrary.build, [utterance(path, "noise")])


def test_a_noise_that_is_not_finite_is_refused_when_it_is_used(tmp_path):
    samples = hiss(4000)
    samples[3000] = np.nan
    path = write_sound(tmp_path, "wild", samples)
    files = NoiseLibrary.build([utterance(path, "noise")]).categories["noise"]
    assert files.read(0, 0.0, 1000, RATE).shape == (1000,)
    assert refused(files.read, 0, 0.1, 2000, RATE) == (
        f"{path}: holds samples that are not finite; re-create the file or drop it"
    )


def test_a_duration_that_is_too_long_is_a_sentence(tmp_path):
    path = write_sound(tmp_path, "short", hiss(2000))
    files = NoiseLibrary.build([utterance(path, "noise", duration=9.0)]).categories["noise"]
    assert "there are no samples at 5.00 s of it; its duration is given too long" in refused(
        files.read, 0, 5.0, 99, RATE
    )


def test_real_noises_and_responses_are_what_they_should_be():
    noises = NoiseLibrary.build(shared_utterances("musan_mini"), jobs=2)
    assert {name: len(files) for name, files in noises.categories.items()} == {"noise": 85, "music": 14, "speech": 24}
    for files in noises.categories.values():
        for index in range(0, len(files), 9):
            assert np.abs(files.read(index, 0.0, 8000, RATE)).max() > 0
    rirs = ImpulseLibrary.build(shared_utterances("rirs"), jobs=2)
    assert len(rirs) == 32
    for index in range(0, 32, 4):
        response = rirs.response(index, RATE)
        assert np.abs(response).argmax() == 0
        assert 800 < len(response) <= RATE
