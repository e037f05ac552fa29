"""Noises and impulse responses of one's own, in one folder."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import soundfile

from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.noise import NoiseLibrary
from svtoolkit.corpora.own_sounds import prepare_noise, prepare_rirs
from svtoolkit.errors import UserError

RATE = 16000


def write(path: Path, channels: int = 1, **options: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(0).uniform(-0.1, 0.1, (RATE // 2, channels))
    soundfile.write(path, samples, RATE, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three formats, at two depths."""
    write(tmp_path / "sounds" / "street.wav")
    write(tmp_path / "sounds" / "rain on roof.FLAC")
    write(tmp_path / "sounds" / "fans" / "old" / "fan.ogg", 2)
    (tmp_path / "sounds" / "notes.txt").write_text("no audio")
    return tmp_path / "sounds"


def test_noises_are_one_category(folder, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        kaldi_dir = prepare_noise(folder, out=tmp_path / "my data", jobs=2)
    assert kaldi_dir.wav_scp == {
        "noise-fans-old-fan": f"{folder}/fans/old/fan.ogg",
        "noise-rain-on-roof": f"{folder}/rain on roof.FLAC",
        "noise-street": f"{folder}/street.wav",
    }
    assert kaldi_dir.speakers == ["noise"]
    assert set(kaldi_dir.utt2dur.values()) == {0.5}
    assert f"train with --augment.noise '{tmp_path}/my data' augment.music_weight=0" in caplog.text
    assert len(NoiseLibrary.build(kaldi_dir.utterances()).categories["noise"]) == 3


def test_impulse_responses(folder):
    kaldi_dir = prepare_rirs(folder)
    assert list(kaldi_dir.utt2spk) == ["rir-fans-old-fan", "rir-rain-on-roof", "rir-street"]
    assert kaldi_dir.speakers == ["rir"]
    assert len(ImpulseLibrary.build(kaldi_dir.utterances())) == 3


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"holds no audio that can be read \(found no file\); add some"),
        ({"a.txt": b"x", "b": b"x"}, r"holds no audio that can be read \(found 1 with no extension, 1 with txt\)"),
        ({"a.m4a": b"x"}, r"a\.m4a: is read as a whole for every slice of it \(1 such files\); convert it to flac"),
        ({"a.wav": b"x"}, r"1 of 1 audio files cannot be used: .*a\.wav: cannot be read as audio"),
    ],
)
def test_folders_that_cannot_be_used(files, message, tmp_path):
    (tmp_path / "sounds").mkdir()
    for name, content in files.items():
        (tmp_path / "sounds" / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        prepare_noise(tmp_path / "sounds")


def test_two_files_of_one_name(folder):
    write(folder / "street.flac")
    with pytest.raises(UserError, match=r"utterance 'noise-street' is both .*street\.flac and .*street\.wav"):
        prepare_noise(folder)
    with pytest.raises(UserError, match="there is no such folder; expected a folder of audio files"):
        prepare_noise(folder / "nowhere")
