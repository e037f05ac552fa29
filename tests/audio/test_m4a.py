"""Files that libsndfile does not read: lengths and places of what was encoded, damage, and the way of other audio."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from m4a_material import PACKET, signal_to_noise, write_ffmpeg, write_m4a
from paths import SHARED
from speech_material import synthesise_voice

from svtoolkit.audio import files as audio
from svtoolkit.audio import m4a
from svtoolkit.audio.files import convert_rate, open_audio, read_audio
from svtoolkit.audio.inspection import inspect_audio, measure_durations
from svtoolkit.audio.m4a import DecodedAudio, decode_file
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError

pytest.importorskip("av", reason="PyAV (extra voxceleb) is not installed")

RATE = 16000


def voice(seconds: float = 1.3, speaker: int = 1) -> np.ndarray:
    return synthesise_voice(speaker, 0, seconds).astype(np.float32)


def tone(samples: int, rate: int) -> np.ndarray:
    time = np.arange(samples) / rate
    noise = np.random.default_rng(samples).standard_normal(samples)
    return (0.3 * np.sin(2 * np.pi * 440 * time) + 0.005 * noise).astype(np.float32)


# ---- what was encoded ----


@pytest.mark.parametrize(("extension", "container"), [("m4a", "ipod"), ("mp4", "mp4"), ("MOV", "mov"), ("3gp", "3gp")])
@pytest.mark.parametrize(("rate", "samples"), [(8000, 5000), (16000, 20_801), (44100, 2 * 44100), (48000, 30 * PACKET)])
def test_mp4_has_as_many_samples_as_were_encoded_and_they_are_in_place(extension, container, rate, samples, tmp_path):
    original = tone(samples, rate)
    path = write_ffmpeg(tmp_path / f"tone.{extension}", original, rate, container=container)
    decoded, decoded_rate = decode_file(path)
    assert decoded.shape == (samples, 1)
    assert (decoded_rate, decoded.dtype) == (rate, np.float32)
    assert decoded.flags.c_contiguous
    # Priming that stayed would shift a tone of 440 Hz against itself.
    assert signal_to_noise(original, decoded[:, 0]) > 15


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples=st.integers(1, 6 * PACKET))
def test_any_length_comes_back(samples, tmp_path):
    path = write_m4a(tmp_path / "tone.m4a", tone(samples, RATE))
    assert len(decode_file(path)[0]) == samples


def test_real_speech(tmp_path):
    files = sorted((SHARED / "data" / "librispeech_mini").rglob("*.flac"))
    if not files:
        pytest.skip("the shared data pack is not beside the repository")
    original, rate = soundfile.read(files[0], dtype="float32")
    decoded, decoded_rate = decode_file(write_m4a(tmp_path / "speech.m4a", original, rate))
    assert (len(decoded), decoded_rate) == (len(original), rate)
    assert signal_to_noise(original, decoded[:, 0]) > 10


@pytest.mark.parametrize(
    ("codec", "sample_format", "dtype", "scale"),
    [
        ("alac", "s16p", np.int16, 2.0**15),
        ("alac", "s32p", np.int32, 2.0**31),
        ("pcm_s16le", "s16", np.int16, 2.0**15),
        ("pcm_s32le", "s32", np.int32, 2.0**31),
        ("pcm_u8", "u8", np.uint8, 2.0**7),
        ("pcm_f32le", "flt", np.float32, 1.0),
        ("pcm_f64le", "dbl", np.float64, 1.0),
    ],
)
def test_lossless_samples_of_any_type_planar_or_not(codec, sample_format, dtype, scale, tmp_path):
    rng = np.random.default_rng(3)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        original = rng.integers(limits.min, limits.max, (3000, 2), dtype=dtype, endpoint=True)
        if codec == "alac" and dtype is np.int32:
            original &= ~0xFF  # it keeps 24 bits
        expected = (original.astype(np.float64) - (128 if dtype is np.uint8 else 0)) / scale
    else:
        original = rng.uniform(-1, 1, (3000, 2)).astype(dtype)
        expected = original.astype(np.float64)
    path = write_ffmpeg(
        tmp_path / "stereo.mov", original, RATE, container="mov", codec=codec, sample_format=sample_format
    )  # fmt: skip
    decoded, rate = decode_file(path)
    assert rate == RATE
    np.testing.assert_allclose(decoded, expected, rtol=0, atol=2.0**-24)


def test_matroska_begins_at_the_first_sample_and_ends_with_a_whole_packet(tmp_path):
    original = voice()
    decoded, rate = decode_file(write_ffmpeg(tmp_path / "voice.mka", original, RATE, container="matroska"))
    assert rate == RATE
    assert 0 <= len(decoded) - len(original) < PACKET
    assert signal_to_noise(original, decoded[:, 0]) > 10


def test_opus_in_webm_is_as_long_as_what_was_encoded(tmp_path):
    original = tone(20_001, 48000)
    path = write_ffmpeg(tmp_path / "tone.webm", original, 48000, container="webm", codec="libopus")
    decoded, rate = decode_file(path)
    assert (len(decoded), rate) == (20_001, 48000)


def test_raw_aac_keeps_the_priming_that_it_does_not_tell_of(tmp_path):
    original = voice()
    decoded, _ = decode_file(write_ffmpeg(tmp_path / "voice.aac", original, RATE, container="adts"))
    assert PACKET <= len(decoded) - len(original) < 3 * PACKET
    assert signal_to_noise(original, decoded[PACKET:, 0]) > 10


def test_two_channels_stay_apart(tmp_path):
    both = np.stack([tone(8000, RATE), 0.25 * tone(8000, RATE)], axis=1)
    path = write_m4a(tmp_path / "both.m4a", both)
    decoded, _ = decode_file(path)
    assert decoded.shape == (8000, 2)
    for channel in (0, 1):
        assert signal_to_noise(both[:, channel], decoded[:, channel]) > 15
        np.testing.assert_array_equal(read_audio(path, sample_rate=RATE, channel=channel), decoded[:, channel])
    with pytest.raises(UserError, match=r"2 channels, expected one; choose one with channel=0"):
        read_audio(path, sample_rate=RATE)


# ---- damage ----


def cut_files(path: Path, pieces: int) -> list[Path]:
    content = path.read_bytes()
    cut = []
    for number in range(pieces):
        cut.append(path.with_name(f"cut{number}{path.suffix}"))
        cut[-1].write_bytes(content[: len(content) * number // pieces])
    return cut


@pytest.mark.parametrize("options", [{}, {"movflags": "+faststart"}])
def test_a_cut_off_m4a_is_refused_wherever_it_was_cut(options, tmp_path):
    whole = write_ffmpeg(tmp_path / "voice.m4a", voice(2.0), RATE, options=options)
    for path in cut_files(whole, 23):
        with pytest.raises(UserError, match=rf"{path}: .*cut off"):
            decode_file(path)


def test_a_matroska_file_that_lost_its_last_packets_is_refused(tmp_path):
    whole = write_ffmpeg(tmp_path / "voice.mka", voice(3.0), RATE, container="matroska")
    messages = []
    for path in cut_files(whole, 10)[2:]:
        with pytest.raises(UserError, match="the file is cut off") as error:
            decode_file(path)
        messages.append(str(error.value))
    assert any("the audio ends after" in message and "the header says 3.0" in message for message in messages)


def test_packets_of_garbage_are_refused(tmp_path):
    path = write_m4a(tmp_path / "voice.m4a", voice(2.0))
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    path.write_bytes(content)
    with pytest.raises(
        UserError, match=r"voice\.m4a: cannot be decoded \(.*\): the file is cut off or broken; copy or"
    ):
        decode_file(path)


@pytest.mark.parametrize("content", [b"", b"no audio at all" * 40, b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n"])
def test_files_that_are_no_audio(content, tmp_path):
    path = tmp_path / "page.m4a"
    path.write_bytes(content)
    for read in (inspect_audio, lambda path: read_audio(path, sample_rate=RATE)):
        with pytest.raises(UserError, match=r"page\.m4a: cannot be decoded \(.*\): the file is cut off or broken"):
            read(path)


def test_a_file_without_audio(tmp_path):
    av = pytest.importorskip("av")
    path = tmp_path / "film.mp4"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mpeg4", rate=5)
        stream.width = stream.height = 32
        for _ in range(3):
            frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    with pytest.raises(
        UserError, match=r"film\.mp4: holds no audio, or is cut off; copy or download it again, or drop it"
    ):
        decode_file(path)


def test_a_missing_file_is_told_as_for_other_audio(tmp_path):
    with pytest.raises(UserError, match=r"gone\.m4a: there is no such file; check the path and the root"):
        inspect_audio(tmp_path / "gone.m4a")


def test_a_name_that_looks_like_an_address_is_a_file(tmp_path, monkeypatch):
    write_m4a(tmp_path / "http:" / "voice.m4a", voice())
    monkeypatch.chdir(tmp_path)
    assert inspect_audio("http:/voice.m4a").samples == len(voice())


def test_without_pyav_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    path = write_m4a(tmp_path / "voice.m4a", voice())
    wav = tmp_path / "voice.wav"
    soundfile.write(wav, voice(), RATE)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UserError, match=r"PyAV, which is not installed: install it with `pip install av`"):
        read_audio(path, sample_rate=RATE)
    assert inspect_audio(wav).samples == len(voice())


# ---- as other audio ----


def test_slices_are_those_of_the_whole_file(tmp_path):
    path = write_m4a(tmp_path / "voice.m4a", voice())
    whole, _ = decode_file(path)
    np.testing.assert_array_equal(read_audio(path, sample_rate=RATE), whole[:, 0])
    for first, count in [(0, 1), (1023, 2), (4096, 4096), (len(whole) - 1, 1), (0, len(whole))]:
        piece = read_audio(path, sample_rate=RATE, start=first / RATE, duration=count / RATE)
        np.testing.assert_array_equal(piece, whole[first : first + count, 0])
    assert len(read_audio(path, sample_rate=RATE, start=1.25, duration=1)) == len(whole) - 20_000
    assert read_audio(path, sample_rate=RATE, start=9.0).shape == (0,)


def test_another_rate_is_refused_or_converted(tmp_path):
    path = write_m4a(tmp_path / "tone.m4a", tone(8000, 8000), 8000)
    with pytest.raises(UserError, match="sample rate is 8000 Hz, expected 16000 Hz"):
        read_audio(path, sample_rate=RATE)
    expected = convert_rate(decode_file(path)[0][:, 0], 8000, RATE)
    np.testing.assert_array_equal(read_audio(path, sample_rate=RATE, resample=True), expected)


def test_headers_and_durations(tmp_path):
    path = write_m4a(tmp_path / "voice.m4a", voice(1.5))
    info = inspect_audio(path)
    assert (info.sample_rate, info.samples, info.channels, info.seconds) == (RATE, 24_000, 1, 1.5)
    soundfile.write(tmp_path / "other.flac", voice(0.5), RATE)
    paths = {"a": path, "b": str(tmp_path / "other.flac")}
    assert measure_durations(paths, jobs=2) == {"a": 1.5, "b": 0.5}


def test_a_data_directory_of_m4a_is_valid(tmp_path):
    for name in ("a-1", "a-2"):
        write_m4a(tmp_path / f"{name}.m4a", voice(1.0))
    (tmp_path / "wav.scp").write_text("".join(f"{name} {tmp_path}/{name}.m4a\n" for name in ("a-1", "a-2")))
    (tmp_path / "utt2spk").write_text("a-1 a\na-2 a\n")
    (tmp_path / "spk2utt").write_text("a a-1 a-2\n")
    found = validate(tmp_path, sample_rate=RATE)
    assert found.faults == []
    assert found.durations == {"a-1": 1.0, "a-2": 1.0}


def test_what_libsndfile_reads_never_comes_here(tmp_path, monkeypatch):
    monkeypatch.setattr(audio, "DecodedAudio", lambda path: pytest.fail(f"{path} was decoded by FFmpeg"))
    for name, audio_format in (("voice.flac", "FLAC"), ("voice.wav", "WAV"), ("wav_in_disguise.m4a", "WAV")):
        soundfile.write(tmp_path / name, voice(), RATE, format=audio_format)
        assert inspect_audio(tmp_path / name).samples == len(voice())
    (tmp_path / "page.flac").write_text("<html>")
    with pytest.raises(UserError, match=r"page\.flac: cannot be read as audio"):
        inspect_audio(tmp_path / "page.flac")


def test_av_is_imported_when_it_is_needed_and_not_before(tmp_path, monkeypatch):
    soundfile.write(tmp_path / "voice.wav", voice(), RATE)
    monkeypatch.setattr(m4a, "import_av", lambda: pytest.fail("av was imported"))
    with open_audio(tmp_path / "voice.wav") as stream:
        assert stream.frames == len(voice())


def test_the_decoded_file_is_read_like_a_sound_file(tmp_path):
    path = write_m4a(tmp_path / "voice.m4a", voice())
    whole = decode_file(path)[0][:, 0]
    with DecodedAudio(path) as stream:
        assert (stream.samplerate, stream.frames, stream.channels) == (RATE, len(whole), 1)
        assert stream.seek(100) == 100
        np.testing.assert_array_equal(stream.read(50), whole[100:150])
        np.testing.assert_array_equal(stream.read(always_2d=True)[:, 0], whole[150:])
        assert stream.read().shape == (0,)
        stream.seek(0)
        stream.read()[:] = 0
        stream.seek(0)
        np.testing.assert_array_equal(stream.read(), whole)
        with pytest.raises(ValueError, match="there is no sample"):
            stream.seek(len(whole) + 1)
        with pytest.raises(ValueError, match="as float32, not as int16"):
            stream.read(dtype="int16")
