from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_directories import RATE, write_noise

from svtoolkit.audio.files import convert_rate, read_audio
from svtoolkit.audio.inspection import inspect_audio, measure_durations
from svtoolkit.errors import UserError
from svtoolkit.system.threads import AHEAD, map_in_order

FORMATS = ["noise.wav", "noise.flac"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24"])
def test_slices_are_those_of_the_whole_file(name, subtype, tmp_path):
    path = write_noise(tmp_path / name, 50_000, subtype=subtype)
    whole, _ = soundfile.read(path, dtype="float32")
    np.testing.assert_array_equal(read_audio(path, sample_rate=RATE), whole)
    rng = np.random.default_rng(0)
    for first, count in [(0, 1), (4095, 2), (4096, 4096), (49_999, 1), *rng.integers(0, 25_000, (40, 2))]:
        piece = read_audio(path, sample_rate=RATE, start=first / RATE, duration=count / RATE)
        assert piece.dtype == np.float32
        np.testing.assert_array_equal(piece, whole[first : first + count])


@pytest.mark.parametrize("name", FORMATS)
def test_slice_over_the_end_is_shorter(name, tmp_path):
    path = write_noise(tmp_path / name, RATE)
    whole, _ = soundfile.read(path, dtype="float32")
    np.testing.assert_array_equal(read_audio(path, sample_rate=RATE, start=0.75, duration=1), whole[12_000:])
    assert read_audio(path, sample_rate=RATE, start=2.0, duration=1).shape == (0,)
    assert read_audio(path, sample_rate=RATE, start=0.5, duration=0).shape == (0,)


def test_only_the_slice_is_decoded(tmp_path, decoded):
    path = write_noise(tmp_path / "noise.flac", 10 * RATE)
    read_audio(path, sample_rate=RATE, start=7.0, duration=0.5)
    assert decoded == [RATE // 2]


def test_what_lies_before_the_slice_may_be_broken(tmp_path):
    """A FLAC file whose first half is garbage: its end can still be read, so nothing before it was decoded."""
    path = write_noise(tmp_path / "noise.flac", 20 * RATE)
    whole, _ = soundfile.read(path, dtype="float32")
    content = bytearray(path.read_bytes())
    content[len(content) // 10 : len(content) // 3] = bytes(len(content) // 3 - len(content) // 10)
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read as audio"):
        read_audio(path, sample_rate=RATE)
    np.testing.assert_array_equal(
        read_audio(path, sample_rate=RATE, start=15.0, duration=2.0), whole[15 * RATE : 17 * RATE]
    )


def test_channel(tmp_path):
    path = write_noise(tmp_path / "stereo.wav", channels=2)
    both, _ = soundfile.read(path, dtype="float32")
    for channel in (0, 1):
        piece = read_audio(path, sample_rate=RATE, start=0.01, duration=0.02, channel=channel)
        np.testing.assert_array_equal(piece, both[160:480, channel])
        assert piece.flags.c_contiguous
    with pytest.raises(UserError, match=r"2 channels, expected one; choose one with channel=0"):
        read_audio(path, sample_rate=RATE)
    for channel in (2, -1):
        with pytest.raises(UserError, match=f"there is no channel {channel}, the file has 2"):
            read_audio(path, sample_rate=RATE, channel=channel)


def test_other_rate_is_refused_or_converted(tmp_path):
    path = write_noise(tmp_path / "narrow.wav", 8000, rate=8000)
    with pytest.raises(UserError, match="sample rate is 8000 Hz, expected 16000 Hz; allow resample=true, or"):
        read_audio(path, sample_rate=RATE)
    with pytest.raises(UserError, match=r"; set features\.sample_rate=8000 where all have it, allow data\.resample"):
        read_audio(path, sample_rate=RATE, keys="data.")
    converted = read_audio(path, sample_rate=RATE, start=0.25, duration=0.5, resample=True)
    assert len(converted) == RATE // 2
    samples, _ = soundfile.read(path, dtype="float32")
    np.testing.assert_array_equal(converted, convert_rate(samples[2000:6000], 8000, RATE))


@pytest.mark.parametrize(("start", "duration"), [(-0.1, None), (0.0, -1.0)])
def test_negative_times_are_a_mistake_of_the_caller(start, duration, tmp_path):
    path = write_noise(tmp_path / "noise.wav")
    with pytest.raises(ValueError, match="must be 0 s or more"):
        read_audio(path, sample_rate=RATE, start=start, duration=duration)


@pytest.mark.parametrize(("from_rate", "to_rate"), [(8000, 16000), (44100, 16000), (16000 * 0.9, 16000)])
def test_conversion_keeps_frequency_and_level_of_a_tone(from_rate, to_rate):
    time_axis = np.arange(round(from_rate)) / from_rate
    tone = (0.3 * np.sin(2 * np.pi * 1000 * time_axis)).astype(np.float32)
    converted = convert_rate(tone, from_rate, to_rate)
    assert converted.dtype == np.float32
    assert abs(len(converted) - to_rate) <= 1
    middle = converted[to_rate // 4 : to_rate // 4 + to_rate // 2].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert np.argmax(spectrum) * to_rate / len(middle) == pytest.approx(1000, abs=to_rate / len(middle) / 2)
    assert np.sqrt(2 * np.mean(middle**2)) == pytest.approx(0.3, rel=1e-3)


def test_conversion_removes_what_the_lower_rate_cannot_hold():
    time_axis = np.arange(16000) / 16000
    tone = np.sin(2 * np.pi * 6000 * time_axis).astype(np.float32)
    assert np.abs(convert_rate(tone, 16000, 8000)[500:-500]).max() < 1e-3


@pytest.mark.parametrize("speed", [0.9, 1.1])
def test_pass_band_of_a_change_of_speed(speed):
    """Flat to a hundredth of a decibel up to 0.91 of the narrower band, and nothing mirrored beyond it."""
    from_rate, samples = 16000 * speed, 32000
    impulse = np.zeros(samples, dtype=np.float32)
    impulse[samples // 2] = 1
    # The response to an impulse of the other rate is larger or smaller by the ratio of both.
    response = speed * convert_rate(impulse, from_rate, 16000).astype(np.float64)
    decibels = 20 * np.log10(np.abs(np.fft.rfft(response)) + 1e-12)
    hertz = np.fft.rfftfreq(len(response), 1 / 16000)
    band = min(from_rate, 16000) / 2
    assert np.abs(decibels[hertz <= 0.91 * band]).max() < 0.01
    if speed < 1:
        assert decibels[hertz >= band].max() < -100
    else:
        time_axis = np.arange(samples) / from_rate
        tone = np.sin(2 * np.pi * 8050 * time_axis).astype(np.float32)
        assert np.abs(convert_rate(tone, from_rate, 16000)[4000:-4000]).max() < 1e-5


def test_header(tmp_path):
    info = inspect_audio(write_noise(tmp_path / "stereo.flac", 4410, rate=44100, channels=2))
    assert (info.sample_rate, info.samples, info.channels, info.seconds) == (44100, 4410, 2, 0.1)


def unknown_length(tmp_path: Path) -> Path:
    """A FLAC file as a pipe leaves it: 36 bits of STREAMINFO that should give the number of samples are zero."""
    path = write_noise(tmp_path / "piped.flac", RATE)
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("read", [inspect_audio, lambda path: read_audio(path, sample_rate=RATE)])
def test_files_that_are_no_audio(read, tmp_path):
    with pytest.raises(UserError, match=r"gone\.wav: there is no such file; check the path and the root"):
        read(tmp_path / "gone.wav")
    (tmp_path / "page.wav").write_text("<html>")
    with pytest.raises(UserError, match=r"page\.wav: cannot be read as audio \(.*\); re-create the file"):
        read(tmp_path / "page.wav")
    (tmp_path / "samples.raw").write_bytes(bytes(100))
    with pytest.raises(UserError, match=r"samples\.raw: cannot be read as audio"):
        read(tmp_path / "samples.raw")
    with pytest.raises(UserError, match=r"piped\.flac: the header does not say how long the audio is"):
        read(unknown_length(tmp_path))


@pytest.mark.parametrize("jobs", [1, 3])
def test_durations_of_many_files(jobs, tmp_path):
    paths = {f"utt{n}": write_noise(tmp_path / f"{n}.wav", 100 * n) for n in (3, 1, 2)}
    assert list(measure_durations(paths, jobs=jobs).items()) == [
        ("utt3", 300 / RATE),
        ("utt1", 100 / RATE),
        ("utt2", 200 / RATE),
    ]
    write_noise(tmp_path / "empty.wav", 0)
    broken = {name: tmp_path / f"{name}.wav" for name in ("empty", "a", "b", "c", "d")}
    with pytest.raises(UserError) as error:
        measure_durations(paths | broken, jobs=jobs)
    message = str(error.value)
    assert message.startswith("5 of 8 audio files cannot be used: ")
    assert "empty.wav: the file holds no sample" in message
    assert "b.wav: there is no such file" in message
    assert "c.wav" not in message
    assert message.endswith("; and 2 more")


COMPRESSED = pytest.mark.parametrize(
    ("name", "options"), [("a.flac", {}), ("a.flac", {"subtype": "PCM_24"}), ("a.mp3", {})]
)


@COMPRESSED
@pytest.mark.parametrize("kept", [0.5, 0.95])
def test_the_length_of_a_file_that_is_cut_off_is_not_taken_from_its_header(name, options, kept, tmp_path):
    path = write_noise(tmp_path / name, 3 * RATE, **options)
    os.truncate(path, int(kept * path.stat().st_size))
    with pytest.raises(UserError, match=rf"1 of 1 audio files cannot be used: {path}: .*header.*: the file is cut off"):
        measure_durations({"a": path})


@COMPRESSED
@pytest.mark.parametrize("samples", [1, 1000, 3 * RATE])
def test_the_length_of_a_whole_compressed_file(name, options, samples, tmp_path):
    path = write_noise(tmp_path / name, samples, **options)
    assert measure_durations({"a": path}) == {"a": len(soundfile.read(path)[0]) / RATE}


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_results_come_in_order(jobs):
    def square(number: int) -> int:
        time.sleep(0.002 * (number % 3 == 0))
        return number**2

    assert list(map_in_order(square, range(40), jobs)) == [number**2 for number in range(40)]


def test_work_is_not_queued_without_bound():
    taken = []
    release = threading.Event()
    results = map_in_order(lambda item: release.wait(10), (taken.append(n) or n for n in range(1000)), 2)
    threading.Timer(0.05, release.set).start()
    assert next(results)
    assert len(taken) == 2 * AHEAD + 1
    results.close()
    assert len(taken) == 2 * AHEAD + 1


def test_error_in_a_thread_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda number: 1 // number, [1, 0, 1], 2))
    with pytest.raises(UserError, match="jobs is 0, expected 1 or more"):
        map_in_order(abs, [1], 0)


def announce(path: Path, size: int) -> Path:
    """Change the number of bytes that the header of a WAV file announces."""
    content = bytearray(path.read_bytes())
    first = content.index(b"data") + 4
    content[first : first + 4] = size.to_bytes(4, "little")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cut.wav", {}),
        ("cut.wav", {"subtype": "PCM_24", "format": "WAVEX"}),
        ("cut.wav", {"subtype": "FLOAT"}),
        ("cut.wav", {"subtype": "MS_ADPCM"}),
        ("cut.wav", {"format": "RF64"}),
        ("cut.w64", {"format": "W64"}),
        ("cut.aiff", {"format": "AIFF"}),
        ("cut.au", {"format": "AU"}),
    ],
)
def test_a_file_without_compression_that_is_cut_off_is_refused(name, options, tmp_path):
    """libsndfile would take what is left of it for the whole."""
    path = tmp_path / name
    soundfile.write(path, np.random.default_rng(0).uniform(-0.1, 0.1, 2 * RATE), RATE, **options)
    assert inspect_audio(path).seconds == pytest.approx(2, abs=0.1)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    message = rf"{name}: holds \d+ of the \d+ bytes of audio that its header announces: the file is cut off; copy or un"
    with pytest.raises(UserError, match=message):
        inspect_audio(path)
    with pytest.raises(UserError, match="is cut off"):
        read_audio(path, sample_rate=RATE, duration=0.1)


def test_lengths_that_wav_headers_have_for_other_reasons(tmp_path):
    path = write_noise(tmp_path / "noise.wav", RATE)
    whole, size = read_audio(path, sample_rate=RATE), 2 * RATE
    # Of pipes, of programs that count the header in, and of chunks behind the samples that are missing.
    for stated in (0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x7FFFF000, size + 44):
        np.testing.assert_array_equal(read_audio(announce(path, stated), sample_rate=RATE), whole)
    with pytest.raises(UserError, match=f"holds {size} of the {size * 5 // 4} bytes of audio"):
        read_audio(announce(path, size * 5 // 4), sample_rate=RATE)
    announce(path, size).write_bytes(path.read_bytes()[:44])
    with pytest.raises(UserError, match=f"holds 0 of the {size} bytes of audio"):
        inspect_audio(path)


def test_a_file_that_ends_before_its_header_says_is_refused_where_it_is_read(tmp_path):
    """An MP3 file keeps the length in its header when it is cut off."""
    path = write_noise(tmp_path / "cut.mp3", 3 * RATE)
    whole = read_audio(path, sample_rate=RATE)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert inspect_audio(path).seconds == pytest.approx(3, abs=0.1)
    stretch = read_audio(path, sample_rate=RATE, start=0.5, duration=0.5)
    np.testing.assert_allclose(stretch, whole[8000:16000], atol=1e-5)
    message = r"cut\.mp3: has no audio from \S* s on, its header says it is 3\.\d\d s long: the file is cut off; copy"
    for beyond in ({}, {"start": 0.5, "duration": 2.0}, {"start": 2.0}):
        with pytest.raises(UserError, match=message):
            read_audio(path, sample_rate=RATE, **beyond)
