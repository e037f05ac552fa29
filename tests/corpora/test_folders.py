from __future__ import annotations

import os
import re

import numpy as np
import pytest
import soundfile

from svtoolkit.corpora.folders import audio_files, files_below, subfolders
from svtoolkit.corpora.musan import prepare_musan
from svtoolkit.corpora.voxceleb import prepare_voxceleb1
from svtoolkit.errors import UserError


def touch(*paths) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_files_by_extension_without_hidden_ones_and_folders(tmp_path):
    touch(tmp_path / "b.wav", tmp_path / "a.WAV", tmp_path / "notes.txt", tmp_path / "wav")
    touch(tmp_path / "._a.wav", tmp_path / ".wav", tmp_path / ".DS_Store", tmp_path / "folder.wav" / "inner.wav")
    assert audio_files(str(tmp_path), [".wav"]) == [("a", f"{tmp_path}/a.WAV"), ("b", f"{tmp_path}/b.wav")]
    below = [f"{tmp_path}/{name}" for name in ("a.WAV", "b.wav", "notes.txt", "wav", "folder.wav/inner.wav")]
    assert list(files_below(str(tmp_path))) == below


def test_links_are_followed_but_not_upwards(tmp_path):
    touch(tmp_path / "disk" / "a.wav", tmp_path / "top" / "inner" / "b.wav")
    (tmp_path / "top" / "linked").symlink_to(tmp_path / "disk")
    (tmp_path / "top" / "inner" / "up").symlink_to("..")
    (tmp_path / "top" / "c.wav").symlink_to(tmp_path / "disk" / "a.wav")
    assert list(files_below(str(tmp_path / "top"))) == [
        f"{tmp_path}/top/{name}" for name in ("c.wav", "inner/b.wav", "linked/a.wav")
    ]


@pytest.mark.parametrize("target", ["/unmounted/id10300", "id10300"])
def test_a_link_to_nothing_is_no_folder_that_may_be_missing(target, tmp_path):
    speakers = tmp_path / "wav"
    (speakers / "id10001" / "video").mkdir(parents=True)
    soundfile.write(speakers / "id10001" / "video" / "00001.wav", np.full(1600, 0.1), 16000)
    (speakers / "id10300").symlink_to(target)
    message = f"{speakers}/id10300: is a link to {target}, which is not there; mount or restore what it stands for"
    with pytest.raises(UserError, match=re.escape(message)):
        prepare_voxceleb1(tmp_path)
    (speakers / "id10300").unlink()
    (speakers / "id10001" / "video" / "00002.wav").symlink_to(target)
    with pytest.raises(UserError, match=r"00002\.wav: is a link to"):
        prepare_voxceleb1(tmp_path)


def test_a_folder_named_like_a_file_is_no_recording(tmp_path):
    (tmp_path / "noise" / "source" / "odd.wav").mkdir(parents=True)
    soundfile.write(tmp_path / "noise" / "source" / "odd.wav" / "noise-0.wav", np.full(1600, 0.1), 16000)
    assert list(prepare_musan(tmp_path).wav_scp) == ["noise-noise-0"]
    assert subfolders(str(tmp_path / "noise" / "source")) == [os.path.join(tmp_path, "noise", "source", "odd.wav")]
