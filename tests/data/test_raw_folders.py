"""A folder of recordings, a parent of data directories or a table, where a data directory is expected."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_material import TRAIN_WORDS, write_audio, write_data

from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """3 speakers of 2 files, in a path with a space."""
    folder = tmp_path / "my speech"
    write_audio(folder, range(3), 2)
    return folder


def said_commands(message: str) -> list[list[str]]:
    """The words after svt of every command that a message names."""
    return [shlex.split(command)[1:] for command in re.findall(r"`(svt prepare [^`]*)`", message)]


@pytest.mark.parametrize(
    "words",
    [
        ["train", *TRAIN_WORDS, "exp_dir={tmp}/exp", "--data.train", "{folder}"],
        ["validate", "{folder}"],
        ["convert", "--source", "{folder}", "out={tmp}/out"],
        ["shard", "--data", "{folder}", "out={tmp}/out"],
        ["prepare", "corpus=kaldi", "--source", "{folder}", "out={tmp}/out"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_names_the_one_that_makes_a_data_directory(words, recordings, tmp_path, capsys):
    words = [word.format(tmp=tmp_path, folder=recordings) for word in words]
    assert main(words) == 1
    error = capsys.readouterr().err
    made = f"{tmp_path}/my speech_data"
    assert f"{recordings}: holds recordings, but no wav.scp and utt2spk; make a data directory of it with " in error
    assert f"and give {made}\n" in error
    (command,) = said_commands(error)
    assert main(command) == 0
    assert len(KaldiDir.read(made).utt2spk) == 6
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "exp").exists()


def test_recordings_without_folders_of_speakers(tmp_path):
    write_audio(tmp_path, range(1), 2)
    with pytest.raises(UserError) as error:
        KaldiDir.read(tmp_path / "s00")
    assert f"move those of each speaker into a folder of its own, {tmp_path}/s00/<speaker>, make" in str(error.value)


def test_a_corpus_in_parts(tmp_path):
    for part, speakers in (("train", range(3)), ("eval", range(5, 7))):
        write_audio(tmp_path / "speech" / part, speakers, 2)
    with pytest.raises(UserError) as error:
        KaldiDir.read(tmp_path / "speech")
    commands = said_commands(str(error.value))
    assert str(error.value).endswith(f"and give {tmp_path}/speech_data/eval")
    assert [main(command) for command in commands] == [0, 0]
    assert KaldiDir.read(tmp_path / "speech_data" / "train").speakers == ["s00", "s01", "s02"]


def test_parts_are_not_taken_for_speakers(tmp_path, capsys):
    for part, speakers in (("train", range(3)), ("eval", range(5, 7))):
        write_audio(tmp_path / "speech" / part, speakers, 2)
    assert main(["prepare", "corpus=folders", "--source", f"{tmp_path}/speech", "--out", f"{tmp_path}/data"]) == 1
    error = capsys.readouterr().err
    assert "holds eval, train, which are parts of a corpus and no speakers; prepare each by itself: " in error
    assert [main(command) for command in said_commands(error)] == [0, 0]
    assert KaldiDir.read(tmp_path / "data" / "eval").speakers == ["s05", "s06"]


def test_speakers_may_be_called_as_parts_are(tmp_path):
    for speaker in ("train", "test"):
        write_audio(tmp_path / "made", range(1), 2)
        (tmp_path / "speech").mkdir(exist_ok=True)
        (tmp_path / "made" / "s00").rename(tmp_path / "speech" / speaker)
    assert main(["prepare", "corpus=folders", "--source", f"{tmp_path}/speech", f"out={tmp_path}/data"]) == 0
    assert KaldiDir.read(tmp_path / "data").speakers == ["test", "train"]


def test_the_parent_of_data_directories(tmp_path, capsys):
    for part, speakers in (("train", range(3)), ("eval", range(5, 7))):
        write_data(tmp_path / "data" / part, speakers, 2)
    message = f"{tmp_path}/data: holds the data directories eval, train, and is none itself; give {tmp_path}/data/eval "
    with pytest.raises(UserError) as error:
        KaldiDir.read(tmp_path / "data")
    assert str(error.value) == f"{message}or {tmp_path}/data/train"
    assert main(["prepare", "corpus=folders", "--source", f"{tmp_path}/data", f"out={tmp_path}/again"]) == 1
    assert f"{tmp_path}/data: holds data directories already, " in capsys.readouterr().err
    assert main(["prepare", "corpus=folders", "--source", f"{tmp_path}/data/train", f"out={tmp_path}/again"]) == 1
    assert f"{tmp_path}/data/train: is a data directory already" in capsys.readouterr().err


def test_a_table_instead_of_its_folder(tmp_path):
    data = write_data(tmp_path / "data", range(2), 2)
    with pytest.raises(UserError, match=f"wav.scp: is a file, expected a data directory.*; give its folder, {data}$"):
        KaldiDir.read(data / "wav.scp")


def test_a_folder_of_something_else_is_a_directory_without_tables(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("no audio")
    with pytest.raises(UserError, match=r"notes/wav\.scp: the file is missing"):
        KaldiDir.read(tmp_path / "notes")


@pytest.mark.parametrize(("key", "corpus"), [("augment.noise", "noise"), ("augment.reverberation", "rirs")])
def test_sounds_of_one_s_own_become_a_library(key, corpus, recordings, tmp_path, capsys):
    data = write_data(tmp_path / "data", range(6), 4)
    words = ["train", *TRAIN_WORDS, f"exp_dir={tmp_path}/exp", f"data.train={data}"]
    assert main([*words, f"--{key}", str(recordings)]) == 1
    (command,) = said_commands(capsys.readouterr().err)
    assert command[:3] == ["prepare", "--corpus", corpus]
    assert main(command) == 0
    said = capsys.readouterr().out.splitlines()
    (options,) = [line.removeprefix("train with ") for line in said if line.startswith("train with ")]
    assert main([*words, *shlex.split(options), "trainer.epochs=1"]) == 0
