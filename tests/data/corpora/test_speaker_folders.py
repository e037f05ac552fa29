from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from svtoolkit.data.corpora.speaker_folders import audio_extensions, prepare_speaker_folders
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
    assert {"wav", "flac", "ogg", "aif", "aiff", "opus", "sph", "w64"} <= extensions
    assert "raw" not in extensions, "samples without a header say neither rate nor type"
    monkeypatch.setattr(soundfile, "available_formats", lambda: {"WAV": "", "NIST": "", "RAW": ""})
    assert audio_extensions() == {"wav", "nist", "sph"}


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
    assert "would both be utterance" in str(error.value)


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
    for name in ("one.m4a", "two.m4a", "list"):
        (tmp_path / "bob" / name).write_text("x")
    with pytest.raises(UserError, match=r"\(found 3 files: 2 with \.m4a, 1 with no extension\); add some or remove it"):
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
