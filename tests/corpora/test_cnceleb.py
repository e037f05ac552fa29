from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from svtoolkit.corpora import cnceleb
from svtoolkit.corpora.cnceleb import read_cnceleb_trials
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError


def prepare_cnceleb(folder: Path, **options: Any) -> KaldiDir:
    return cnceleb.prepare_cnceleb(folder, **options).kaldi_dir


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full(1600, 0.1), 16000)


@pytest.fixture
def corpora(tmp_path) -> Path:
    """Both corpora as their archives unpack: names of lists are those of the first version, in wav."""
    one, two = tmp_path / "CN-Celeb_flac", tmp_path / "CN-Celeb2_flac"
    for speaker in ("id00000", "id00799", "id00800", "id00999"):
        for name in ("singing-01-001", "interview-02-010"):
            write(one / "data" / speaker / f"{name}.flac")
    (one / "dev").mkdir()
    (one / "dev" / "dev.lst").write_text("id00000\nid00500\nid00799\n")
    for speaker in ("id00800", "id00999"):
        write(one / "eval" / "enroll" / f"{speaker}-enroll.flac")
        write(one / "eval" / "test" / f"{speaker}-singing-01-001.flac")
    lists = one / "eval" / "lists"
    lists.mkdir()
    (lists / "trials.lst").write_text(
        "id00800-enroll test/id00800-singing-01-001.wav 1\nid00800-enroll test/id00999-singing-01-001.wav 0\n\n"
    )
    (lists / "enroll.lst").write_text("id00800-enroll enroll/id00800-enroll.wav\n")
    for speaker in ("id10000", "id11999"):
        write(two / "data" / speaker / "vlog-01-001.flac")
    (two / "spk.lst").write_text("id10000\nid11999\n")
    return tmp_path


def test_the_speakers_to_train_on(corpora, caplog):
    with caplog.at_level(logging.INFO, logger="svtoolkit"):
        kaldi_dir = prepare_cnceleb(corpora, part="dev", jobs=2)
    assert kaldi_dir.speakers == ["id00000", "id00799", "id10000", "id11999"]
    assert list(kaldi_dir.wav_scp)[:2] == ["id00000-interview-02-010", "id00000-singing-01-001"]
    assert set(kaldi_dir.utt2dur.values()) == {0.1}
    assert caplog.messages == [
        f"{corpora}/CN-Celeb_flac/dev/dev.lst: 1 of the 3 speakers have no folder",
        "cnceleb dev: 4 speakers, 6 utterances",
    ]


def test_one_of_the_corpora(corpora):
    assert prepare_cnceleb(corpora / "CN-Celeb2_flac", part="dev").speakers == ["id10000", "id11999"]
    assert prepare_cnceleb(corpora / "CN-Celeb_flac", part="dev").speakers == ["id00000", "id00799"]


def test_all_of_it(corpora):
    assert len(prepare_cnceleb(corpora).speakers) == 6
    assert len(prepare_cnceleb(corpora / "CN-Celeb_flac").wav_scp) == 8


def test_enrolment_and_test_with_their_trials(corpora):
    kaldi_dir = prepare_cnceleb(corpora, part="test")
    assert kaldi_dir.utt2spk == {
        "id00800-enroll": "id00800",
        "id00800-singing-01-001": "id00800",
        "id00999-enroll": "id00999",
        "id00999-singing-01-001": "id00999",
    }
    assert kaldi_dir.wav_scp["id00800-enroll"] == f"{corpora}/CN-Celeb_flac/eval/enroll/id00800-enroll.flac"
    trials = read_cnceleb_trials(corpora, kaldi_dir.utt2spk)
    assert trials.enrol == ["id00800-enroll", "id00800-enroll"]
    assert trials.test == ["id00800-singing-01-001", "id00999-singing-01-001"]
    assert trials.target.tolist() == [True, False]


def test_trials_that_cannot_be_used(corpora):
    listing = corpora / "CN-Celeb_flac" / "eval" / "lists" / "trials.lst"
    with pytest.raises(UserError, match=r"trials\.lst:2: names 'id00999-singing-01-001', which has no file; unpack"):
        read_cnceleb_trials(corpora, ["id00800-enroll", "id00800-singing-01-001"])
    listing.write_text("id00800-enroll test/id00800-singing-01-001.wav target\n")
    with pytest.raises(
        UserError, match=r"trials\.lst:1: found '.* target', expected `<speaker>-enroll test/<file>\.wav 0`"
    ):
        read_cnceleb_trials(corpora, [])
    listing.write_text("\n")
    with pytest.raises(UserError, match=r"trials\.lst: the trial list is empty"):
        read_cnceleb_trials(corpora, [])
    listing.unlink()
    for call in (lambda: read_cnceleb_trials(corpora, []), lambda: prepare_cnceleb(corpora, part="test")):
        with pytest.raises(UserError, match=r"trials\.lst: the file is missing; expected CN-Celeb1 \(CN-Celeb_flac\)"):
            call()


def test_what_is_no_cnceleb(corpora, tmp_path):
    with pytest.raises(UserError, match=r"nowhere: there is no such folder; expected CN-Celeb_flac, CN-Celeb2_flac or"):
        prepare_cnceleb(tmp_path / "nowhere")
    with pytest.raises(UserError, match="part is 'eval', expected one of all, dev, test"):
        prepare_cnceleb(corpora, part="eval")
    (tmp_path / "other" / "wav").mkdir(parents=True)
    with pytest.raises(UserError, match=r"neither it nor a folder in it holds data/; expected data/<speaker>/<genre>"):
        prepare_cnceleb(tmp_path / "other")
    (tmp_path / "other" / "data" / "id00000").mkdir(parents=True)
    with pytest.raises(UserError, match=r"no audio of part=all is there; expected data/<speaker>"):
        prepare_cnceleb(tmp_path / "other")
    with pytest.raises(
        UserError, match=r"dev/dev\.lst: the file is missing; it names the speakers of CN-Celeb1 to train"
    ):
        prepare_cnceleb(tmp_path / "other", part="dev")
    (corpora / "CN-Celeb_flac" / "eval" / "enroll").rename(tmp_path / "enroll")
    with pytest.raises(UserError, match=r"eval/enroll: there is no such folder; unpack the archive of CN-Celeb1 again"):
        prepare_cnceleb(corpora, part="test")
