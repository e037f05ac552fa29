"""Conversion of a corpus: what the files hold, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conversion_material import RATE, contents, voice, write_source

from svtoolkit.audio.files import convert_rate, read_audio
from svtoolkit.data.conversion import convert_corpus
from svtoolkit.data.kaldi_dir import KaldiDir, Segment
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError

pytestmark = pytest.mark.usefixtures("forked_workers")  # test_conversion_interrupted has spawned ones


@pytest.fixture
def source(tmp_path) -> Path:
    return write_source(tmp_path / "source")


@pytest.mark.parametrize(("audio_format", "kind"), [("flac", "FLAC"), ("wav", "WAV")])
@pytest.mark.parametrize("jobs", [1, 2])
def test_sixteen_bit_audio_stays_as_it_was(audio_format, kind, jobs, source, tmp_path):
    out = tmp_path / "out"
    done: list[int] = []
    kaldi_dir = convert_corpus(source, out, format=audio_format, jobs=jobs, progress=done.append)
    original = KaldiDir.read(source)
    assert sum(done) == 9
    assert kaldi_dir.utt2spk == original.utt2spk
    for utterance, path in kaldi_dir.wav_scp.items():
        assert path == f"{out}/audio/{utterance[:2]}/{utterance}.{audio_format}"
        info = soundfile.info(path)
        assert (info.format, info.subtype, info.samplerate, info.channels) == (kind, "PCM_16", RATE, 1)
        assert kaldi_dir.utt2dur[utterance] == info.frames / RATE
        expected, _ = soundfile.read(original.wav_scp[utterance], dtype="int16")
        np.testing.assert_array_equal(soundfile.read(path, dtype="int16")[0], expected)
    assert KaldiDir.read(out).utt2dur == kaldi_dir.utt2dur
    for name in ("trials", "trials_O"):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    assert not (out / "bad_files.tsv").exists()
    (source / "trials_O").unlink()
    (out / "trials_O").unlink()
    assert validate(out).faults == []


def test_m4a_becomes_what_read_audio_reads(tmp_path):
    source = write_source(tmp_path / "source", extension="m4a")
    kaldi_dir = convert_corpus(source, tmp_path / "out", jobs=2)
    assert list(kaldi_dir.utt2dur.values()) == pytest.approx([0.2, 0.21, 0.22] * 3)
    for utterance, path in kaldi_dir.wav_scp.items():
        expected = read_audio(KaldiDir.read(source).wav_scp[utterance], sample_rate=RATE)
        np.testing.assert_allclose(read_audio(path, sample_rate=RATE), expected, rtol=0, atol=0.5 / 32768)


def test_another_rate_is_converted_and_a_channel_chosen(tmp_path):
    source, samples = tmp_path / "source", np.stack([voice(1, 0), voice(2, 0)], axis=1)
    source.mkdir()
    soundfile.write(source / "both.wav", samples, 8000, subtype="FLOAT")
    KaldiDir({"a-1": str(source / "both.wav")}, {"a-1": "a"}).write(source)
    kaldi_dir = convert_corpus(source, tmp_path / "out", channel=1)
    expected = convert_rate(np.ascontiguousarray(samples[:, 1]), 8000, RATE)
    np.testing.assert_allclose(
        read_audio(kaldi_dir.wav_scp["a-1"], sample_rate=RATE), expected, rtol=0, atol=0.5 / 32768
    )
    with pytest.raises(UserError, match=r"1 of \d+ files cannot be used, .*both\.wav: 2 channels, expected one"):
        convert_corpus(source, tmp_path / "other", max_bad=0)


def test_segments_become_files(source, tmp_path):
    kaldi_dir = KaldiDir.read(source)
    recording = {"rec": kaldi_dir.wav_scp["s0-v-0"]}
    segments = {"s0-a": Segment("rec", 0.05, 0.1), "s0-b": Segment("rec", 0.1, None)}
    KaldiDir(recording, {"s0-a": "s0", "s0-b": "s0"}, segments).write(tmp_path / "cut")
    converted = convert_corpus(tmp_path / "cut", tmp_path / "out")
    whole, _ = soundfile.read(recording["rec"], dtype="int16")
    for name, expected in (("s0-a", whole[800:1600]), ("s0-b", whole[1600:])):
        np.testing.assert_array_equal(soundfile.read(converted.wav_scp[name], dtype="int16")[0], expected)
    assert not (tmp_path / "out" / "segments").exists()
    assert converted.utt2dur == {"s0-a": 0.05, "s0-b": 0.1}


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_became_other_audio_is_converted_again(jobs, source, tmp_path):
    out = tmp_path / "out"
    first = convert_corpus(source, out)
    times = {name: os.stat(path).st_mtime_ns for name, path in first.wav_scp.items()}
    moved, repaired = "s0-v-0", "s1-v-1"
    table = KaldiDir.read(source)
    table.wav_scp[moved] = table.wav_scp["s2-v-2"]
    table.write(source)
    soundfile.write(table.wav_scp[repaired], voice(7, 7, 0.4), RATE)
    os.utime(table.wav_scp[repaired], ns=(times[repaired] + 10**9,) * 2)
    second = convert_corpus(source, out, jobs=jobs)
    assert second.utt2dur == first.utt2dur | {moved: first.utt2dur["s2-v-2"], repaired: 0.4}
    for name in (moved, repaired):
        expected, _ = soundfile.read(table.wav_scp[name], dtype="int16")
        np.testing.assert_array_equal(soundfile.read(second.wav_scp[name], dtype="int16")[0], expected)
    again = {name for name, path in second.wav_scp.items() if os.stat(path).st_mtime_ns != times[name]}
    assert again == {moved, repaired}


def test_what_was_converted_outlives_its_source(source, tmp_path):
    first = convert_corpus(source, tmp_path / "out")
    shutil.rmtree(source / "original")
    assert convert_corpus(source, tmp_path / "out") == first


def test_another_stretch_is_converted_again(source, tmp_path):
    recording = {"rec": KaldiDir.read(source).wav_scp["s0-v-0"]}
    for end in (0.1, None, 0.15):
        KaldiDir(recording, {"s0-a": "s0"}, {"s0-a": Segment("rec", 0.05, end)}).write(tmp_path / "cut")
        converted = convert_corpus(tmp_path / "cut", tmp_path / "out")
        assert converted.utt2dur == {"s0-a": pytest.approx((end or 0.2) - 0.05)}


def test_paths_are_taken_from_the_root(source, tmp_path):
    table = (source / "wav.scp").read_text().replace(f"{tmp_path}/", "")
    (source / "wav.scp").write_text(table)
    assert len(convert_corpus(source, tmp_path / "out", root=tmp_path).wav_scp) == 9


def test_ids_with_slashes_become_folders_and_cannot_leave_them(tmp_path):
    soundfile.write(tmp_path / "a.wav", voice(0, 0), RATE)
    source = tmp_path / "source"
    KaldiDir({"a/v/1.wav": str(tmp_path / "a.wav")}, {"a/v/1.wav": "a"}).write(source)
    kaldi_dir = convert_corpus(source, tmp_path / "out")
    assert kaldi_dir.wav_scp["a/v/1.wav"] == f"{tmp_path}/out/audio/a/a/v/1.wav.flac"
    for name in ("../../../escaped", "/absolute", "a//b", "."):
        KaldiDir({name: str(tmp_path / "a.wav")}, {name: "a"}).write(source)
        with pytest.raises(UserError, match="cannot name a file"):
            convert_corpus(source, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "mp3"}, "format is 'mp3', expected one of flac, wav"),
        ({"sample_rate": 0}, "sample_rate is 0, expected a rate in Hz such as 16000"),
        ({"channel": -1}, "channel is -1, expected 0 or more"),
        ({"jobs": 0}, "jobs is 0, expected 1 or more"),
        ({"max_bad": 1.5}, "max_bad is 1.5, expected a share of the files from 0 to 1"),
    ],
)
def test_impossible_options(options, message, source, tmp_path):
    with pytest.raises(UserError, match=message):
        convert_corpus(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_source_is_not_overwritten(source):
    before = contents(source)
    with pytest.raises(UserError, match="is the directory that is converted; choose another folder"):
        convert_corpus(source, source / ".." / "source")
    assert contents(source) == before


def test_two_kinds_of_conversion_are_not_mixed(source, tmp_path):
    convert_corpus(source, tmp_path / "out", sample_rate=8000)
    assert json.loads((tmp_path / "out" / "conversion.json").read_text()) == {
        "format": "flac", "sample_rate": 8000, "channel": None,
    }  # fmt: skip
    with pytest.raises(
        UserError, match=r"conversion\.json: the folder holds a conversion to .* 8000.* now asked for .* 16000"
    ):
        convert_corpus(source, tmp_path / "out")


def test_without_pyav_m4a_is_refused_before_anything_is_written(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    convert_corpus(source, tmp_path / "wav")
    table = (source / "wav.scp").read_text().replace("s2/v/1.wav", "s2/v/1.m4a")
    (source / "wav.scp").write_text(table)
    with pytest.raises(UserError, match=r"PyAV, which is not installed: install it with `pip install av`"):
        convert_corpus(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
