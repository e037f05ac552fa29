from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from m4a_material import write_m4a

from svtoolkit.audio.formats import audio_extensions
from svtoolkit.audio.m4a import EXTENSIONS
from svtoolkit.corpora.speaker_folders import prepare_speaker_folders
from svtoolkit.data.conversion import convert_corpus
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError

RATE = 16000


def write_audio(path: Path, samples: int = 1600, **options: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.random.default_rng(samples).uniform(-0.1, 0.1, samples), RATE, **options)
    return path


def test_folders_of_any_depth_and_format(tmp_path):
    top = tmp_path / "corpus"
    write_audio(top / "ann" / "one.wav", 1600)
    write_audio(top / "ann" / "day 1" / "tape.a" / "two.FLAC", 3200)
    write_audio(top / "bob" / "three.ogg", 4800)
    write_audio(top / "bob" / "four.aif", 800, format="AIFF")
    (top / "bob" / "notes.txt").write_text("no audio")
    (top / "README.md").write_text("no audio")
    kaldi_dir = prepare_speaker_folders(top, jobs=2)
    assert kaldi_dir.utt2spk == {"ann-day-1-tape.a-two": "ann", "ann-one": "ann", "bob-four": "bob", "bob-three": "bob"}
    assert kaldi_dir.wav_scp["ann-day-1-tape.a-two"] == f"{top}/ann/day 1/tape.a/two.FLAC"
    assert kaldi_dir.utt2dur == {
        "ann-day-1-tape.a-two": 0.2,
        "ann-one": 0.1,
        "bob-four": 0.05,
        "bob-three": pytest.approx(0.3, abs=1e-3),
    }
    assert list(kaldi_dir.utt2spk) == sorted(kaldi_dir.utt2spk)
    kaldi_dir.write(tmp_path / "data")
    assert validate(tmp_path / "data").ok


def test_speaker_name_with_white_space(tmp_path):
    write_audio(tmp_path / "Ann  van Dyk" / "my tape.wav")
    kaldi_dir = prepare_speaker_folders(tmp_path)
    assert kaldi_dir.utt2spk == {"Ann-van-Dyk-my-tape": "Ann-van-Dyk"}
    assert kaldi_dir.wav_scp == {"Ann-van-Dyk-my-tape": f"{tmp_path}/Ann  van Dyk/my tape.wav"}


def test_hidden_files_are_passed_over(tmp_path):
    write_audio(tmp_path / "ann" / "one.wav")
    for hidden in (".DS_Store", "ann/._one.wav", "ann/.cache/two.wav", ".git/three.wav"):
        (tmp_path / hidden).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / hidden).write_text("no audio")
    assert list(prepare_speaker_folders(tmp_path).utt2spk) == ["ann-one"]


def test_links_are_followed_once(tmp_path):
    write_audio(tmp_path / "disk" / "ann" / "day1" / "one.wav")
    top = tmp_path / "corpus"
    top.mkdir()
    os.symlink(tmp_path / "disk" / "ann", top / "ann")
    for loop in ("loop", "again"):  # two of them: walked without end they would double at every level
        os.symlink(tmp_path / "disk" / "ann", tmp_path / "disk" / "ann" / "day1" / loop)
    kaldi_dir = prepare_speaker_folders(top)
    assert kaldi_dir.wav_scp == {"ann-day1-one": f"{top}/ann/day1/one.wav"}


def test_extensions_follow_the_installed_library(monkeypatch):
    extensions = audio_extensions()
    assert {"wav", "flac", "ogg", "aif", "aiff", "opus", "sph", "w64", "m4a", "aac", "webm"} <= extensions
    assert "raw" not in extensions, "samples without a header say neither rate nor type"
    monkeypatch.setattr(soundfile, "available_formats", lambda: {"WAV": "", "NIST": "", "RAW": ""})
    assert audio_extensions.__wrapped__() - {extension[1:] for extension in EXTENSIONS} == {"wav", "nist", "sph"}


@pytest.mark.parametrize(
    ("first", "second"),
    [("ann/one.wav", "ann/one.flac"), ("ann/day 1/one.wav", "ann/day-1-one.wav"), ("a/b-c.wav", "a-b/c.wav")],
)
def test_two_files_of_one_id(first, second, tmp_path):
    write_audio(tmp_path / first)
    write_audio(tmp_path / second)
    with pytest.raises(UserError) as error:
        prepare_speaker_folders(tmp_path)
    assert str(tmp_path / first) in str(error.value)
    assert str(tmp_path / second) in str(error.value)
    assert "is both" in str(error.value)
    assert "keep one of them" in str(error.value)


@pytest.mark.parametrize("name", ["one.m4a", "day 1/one.M4A", "one.aac", "one.mp4"])
def test_what_is_left_to_ffmpeg_is_listed_and_measured_by_the_conversion(name, tmp_path):
    """Listed by its name alone, as VoxCeleb2 is: its length is known only when it has been decoded."""
    write_audio(tmp_path / "ann" / "two.wav")
    (tmp_path / "bob" / name).parent.mkdir(parents=True)
    (tmp_path / "bob" / name).touch()
    kaldi_dir = prepare_speaker_folders(tmp_path)
    utterance = "bob-" + "-".join(name.rpartition(".")[0].replace("/", " ").split())
    assert kaldi_dir.wav_scp == {"ann-two": f"{tmp_path}/ann/two.wav", utterance: f"{tmp_path}/bob/{name}"}
    assert kaldi_dir.utt2spk == {"ann-two": "ann", utterance: "bob"}
    assert kaldi_dir.utt2dur == {}
    (tmp_path / name.rpartition("/")[2]).touch()
    with pytest.raises(UserError, match="audio outside a speaker folder"):
        prepare_speaker_folders(tmp_path)


def test_m4a_and_wav_become_files_of_one_kind(tmp_path):
    samples = np.random.default_rng(0).uniform(-0.1, 0.1, 8000)
    write_m4a(tmp_path / "speech" / "ann" / "one.m4a", samples)
    write_audio(tmp_path / "speech" / "bob" / "two.wav", 4000)
    prepare_speaker_folders(tmp_path / "speech").write(tmp_path / "data")
    assert validate(tmp_path / "data").ok
    converted = convert_corpus(tmp_path / "data", tmp_path / "converted")
    assert converted.utt2dur == {"ann-one": 0.5, "bob-two": 0.25}


@pytest.mark.parametrize("place", ["bob", "ann/day2"])
def test_a_link_to_nothing_is_no_folder_that_may_be_missing(place, tmp_path):
    write_audio(tmp_path / "ann" / "one.wav")
    for target in ("/unmounted/bob", (tmp_path / place).name):
        (tmp_path / place).symlink_to(target)
        with pytest.raises(UserError, match=f"{place}: is a link to {target}, which is not there; mount or restore"):
            prepare_speaker_folders(tmp_path)
        (tmp_path / place).unlink()


def test_a_folder_that_may_not_be_entered_is_not_passed_over(tmp_path, monkeypatch):
    write_audio(tmp_path / "ann" / "one.wav")
    (tmp_path / "ann" / "closed").mkdir()
    scan = os.scandir

    def refuse(path):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="closed"):
        prepare_speaker_folders(tmp_path)


def test_two_speakers_of_one_id(tmp_path):
    write_audio(tmp_path / "ann lee" / "one.wav")
    write_audio(tmp_path / "ann-lee" / "two.wav")
    with pytest.raises(UserError, match=r"ann lee and .*ann-lee would both be speaker 'ann-lee'; rename one of them"):
        prepare_speaker_folders(tmp_path)


def test_unreadable_files_are_counted(tmp_path):
    write_audio(tmp_path / "ann" / "good.wav")
    for number in range(5):
        (tmp_path / "ann" / f"bad{number}.wav").write_text("no audio")
    with pytest.raises(UserError) as error:
        prepare_speaker_folders(tmp_path)
    message = str(error.value)
    assert message.startswith("5 of 6 audio files cannot be used: ")
    assert "bad0.wav: cannot be read as audio" in message
    assert "bad3.wav" not in message
    assert message.endswith("; and 2 more")


def test_speaker_without_audio(tmp_path):
    write_audio(tmp_path / "ann" / "one.wav")
    (tmp_path / "bob").mkdir()
    with pytest.raises(UserError, match="bob: the speaker folder holds no audio; add some or remove it"):
        prepare_speaker_folders(tmp_path)
    for name in ("one.wma", "two.wma", "list"):
        (tmp_path / "bob" / name).write_text("x")
    message = r"no audio that can be read \(found 3 files: 2 with \.wma, 1 with no extension\); add some or remove it"
    with pytest.raises(UserError, match=message):
        prepare_speaker_folders(tmp_path)


def test_audio_without_a_speaker(tmp_path):
    write_audio(tmp_path / "ann" / "one.wav")
    write_audio(tmp_path / "stray.wav")
    with pytest.raises(UserError, match=r"stray\.wav: audio outside a speaker folder \(1 such files\)"):
        prepare_speaker_folders(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match="there is no speaker folder"):
        prepare_speaker_folders(tmp_path)
    with pytest.raises(UserError, match="there is no such folder"):
        prepare_speaker_folders(tmp_path / "gone")
