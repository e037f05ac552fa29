from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from svtoolkit.corpora.librispeech import prepare_librispeech
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError

RATE = 16000


def write_utterance(subset: Path, name: str, samples: int = 1600) -> Path:
    speaker, chapter, _ = name.split("-")
    path = subset / speaker / chapter / f"{name}.flac"
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.random.default_rng(samples).uniform(-0.1, 0.1, samples), RATE)
    return path


NAMES = ["19-198-0000", "19-198-0001", "19-227-0000", "198-126831-0000", "198-209-0000", "2-1-0000"]


def test_subset(tmp_path):
    subset = tmp_path / "train-clean-100"
    for number, name in enumerate(NAMES, start=1):
        write_utterance(subset, name, 1600 * number)
    (subset / "19" / "198" / "19-198.trans.txt").write_text("19-198-0000 NORTHANGER ABBEY\n")
    kaldi_dir = prepare_librispeech(subset, jobs=2)
    assert kaldi_dir.spk2utt == {"19": NAMES[:3], "198": NAMES[3:5], "2": NAMES[5:]}
    assert kaldi_dir.wav_scp["19-227-0000"] == f"{subset}/19/227/19-227-0000.flac"
    assert kaldi_dir.utt2dur == {name: number / 10 for number, name in enumerate(NAMES, start=1)}
    kaldi_dir.write(tmp_path / "data")
    assert validate(tmp_path / "data").ok


def test_utterances_sorted_by_bytes_are_sorted_by_speaker(tmp_path):
    """Kaldi's rule for ids of different length: 19-... must not fall among the utterances of 198."""
    for name in NAMES:
        write_utterance(tmp_path / "dev-clean", name)
    speakers = list(prepare_librispeech(tmp_path / "dev-clean").utt2spk.values())
    assert speakers == sorted(speakers) == ["19", "19", "19", "198", "198", "2"]


def test_root_of_several_subsets(tmp_path):
    write_utterance(tmp_path / "dev-clean", NAMES[0])
    write_utterance(tmp_path / "test-other", NAMES[3])
    (tmp_path / "SPEAKERS.TXT").write_text("; ID | SEX\n")
    assert prepare_librispeech(tmp_path).utt2spk == {NAMES[0]: "19", NAMES[3]: "198"}


def test_utterance_in_two_subsets(tmp_path):
    first = write_utterance(tmp_path / "dev-clean", NAMES[0])
    second = write_utterance(tmp_path / "dev-other", NAMES[0])
    with pytest.raises(UserError) as error:
        prepare_librispeech(tmp_path)
    assert f"utterance '19-198-0000' is both {first} and {second}" in str(error.value)


@pytest.mark.parametrize("name", ["19/198/20-198-0000", "19/198/19-199-0000", "19/198/take", "19/198/19-198-1-2"])
def test_file_that_is_not_named_by_its_folders(name, tmp_path):
    write_utterance(tmp_path, NAMES[0]).rename(tmp_path / f"{name}.flac")
    with pytest.raises(UserError, match=rf"{name}\.flac: expected a file named by its folders, <speaker>/<chapter>/"):
        prepare_librispeech(tmp_path)


def test_hidden_files_folders_named_like_files_and_upper_case(tmp_path):
    write_utterance(tmp_path, NAMES[0]).rename(tmp_path / "19" / "198" / f"{NAMES[0]}.FLAC")
    for hidden in (f"19/198/._{NAMES[0]}.flac", ".cache/198/19-198-0009.flac", "19/._198/x.flac"):
        (tmp_path / hidden).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / hidden).write_text("no audio")
    (tmp_path / "19" / "198" / "19-198-0001.flac").mkdir()
    assert prepare_librispeech(tmp_path).wav_scp == {NAMES[0]: f"{tmp_path}/19/198/{NAMES[0]}.FLAC"}


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match="there is no such folder; expected a subset of LibriSpeech"):
        prepare_librispeech(tmp_path / "gone")
    (tmp_path / "wav").mkdir()
    with pytest.raises(UserError, match="no file is laid out as in LibriSpeech"):
        prepare_librispeech(tmp_path)


def test_unreadable_file(tmp_path):
    write_utterance(tmp_path, NAMES[0]).write_bytes(b"")
    with pytest.raises(UserError, match=r"1 of 1 audio files cannot be used: .*19-198-0000\.flac: cannot be read"):
        prepare_librispeech(tmp_path)
