"""Paths of Windows are known where they lead nowhere, in every message about a file that is not there."""

from __future__ import annotations

import os

import pytest
from command_material import write_data

from svtoolkit.audio.files import read_audio
from svtoolkit.corpora.kaldi import prepare_kaldi
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError
from svtoolkit.system.foreign_path import remedy_of_windows_path

WORDS = "it is a path of Windows, which this system does not read"


@pytest.mark.parametrize("path", [r"C:\speech\a.wav", "D:/speech/a.wav", r"wav\a.wav", r"/data/C:\a.wav"])
def test_windows(path):
    assert str(remedy_of_windows_path(path)).startswith(WORDS)


@pytest.mark.parametrize("path", ["/data/a.wav", "wav/a.wav", "https://host/a.tar", "s3://b/a.tar", "ab:/c.wav"])
def test_others(path):
    assert remedy_of_windows_path(path) is None


def test_on_windows_itself_they_are_as_good_as_any(monkeypatch):
    monkeypatch.setattr(os, "sep", "\\")
    assert remedy_of_windows_path(r"C:\speech\a.wav") is None


def test_reading_validating_and_preparing_say_so(tmp_path):
    folder = write_data(tmp_path / "data", range(2), 2)
    table = folder / "wav.scp"
    table.write_text(table.read_text().replace(str(folder) + "/wav/", "C:\\speech\\"))
    (fault, *_) = [fault for fault in validate(folder).faults if fault.code == "missing-audio"]
    assert fault.where == "wav.scp:1"
    assert WORDS in fault.message
    with pytest.raises(UserError, match=WORDS):
        prepare_kaldi([folder])
    with pytest.raises(UserError, match=WORDS):
        read_audio(r"C:\speech\a.wav", sample_rate=8000)
