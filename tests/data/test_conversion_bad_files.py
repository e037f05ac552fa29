"""Conversion of a corpus with files that cannot be decoded: they are listed and left out, and too many end it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from conversion_material import RATE, audio_of, voice, write_source

from svtoolkit.data import conversion
from svtoolkit.data.conversion import convert_corpus
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError

pytestmark = pytest.mark.usefixtures("forked_workers")  # test_conversion_interrupted has spawned ones

HEADER = "utterance\tfile\treason\n"


@pytest.fixture
def source(tmp_path) -> Path:
    return write_source(tmp_path / "source")


def break_one(source: Path, name: str = "s1-v-1", content: bytes = b"no audio") -> Path:
    path = Path(KaldiDir.read(source).wav_scp[name])
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_bad_file_may_be_and_is_listed(jobs, source, tmp_path, caplog):
    path = break_one(source)
    kaldi_dir = convert_corpus(source, tmp_path / "out", jobs=jobs)
    assert len(kaldi_dir.wav_scp) == 8
    assert "s1-v-1" not in (tmp_path / "out" / "utt2dur").read_text()
    bad = (tmp_path / "out" / "bad_files.tsv").read_text()
    assert bad.startswith(f"{HEADER}s1-v-1\t{path}\t{path}: cannot be read as audio (")
    assert len(bad.splitlines()) == 2
    assert caplog.messages == [
        f"{tmp_path}/out/bad_files.tsv: 1 of 9 utterances are bad and left out",
        f"{tmp_path}/out/trials_O: names utterances that are bad; it cannot be scored as it is",
    ]
    # Once it is repaired, it is the only one that is made.
    before = {file: file.stat().st_mtime_ns for file in audio_of(tmp_path / "out")}
    soundfile.write(path, voice(1, 1), RATE)
    assert len(convert_corpus(source, tmp_path / "out", jobs=jobs).wav_scp) == 9
    assert not (tmp_path / "out" / "bad_files.tsv").exists()
    assert before.items() <= {file: file.stat().st_mtime_ns for file in audio_of(tmp_path / "out")}.items()


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: path.write_bytes(b""), "cannot be read as audio"),
        (lambda path: path.unlink(), "there is no such file"),
        (lambda path: soundfile.write(path, np.zeros(0), RATE), "holds no sample there"),
        (lambda path: soundfile.write(path, np.full(9, np.nan), RATE, subtype="FLOAT"), "holds samples that are NaN"),
    ],
)
def test_reasons(write, reason, source, tmp_path):
    path = Path(KaldiDir.read(source).wav_scp["s2-v-0"])
    write(path)
    convert_corpus(source, tmp_path / "out")
    assert f"s2-v-0\t{path}\t{path}: {reason}" in (tmp_path / "out" / "bad_files.tsv").read_text()


def test_a_cut_off_m4a_is_bad(tmp_path):
    source = write_source(tmp_path / "source", extension="m4a")
    path = Path(KaldiDir.read(source).wav_scp["s0-v-2"])
    path.write_bytes(path.read_bytes()[:700])
    convert_corpus(source, tmp_path / "out", jobs=2)
    assert "the file is cut off" in (tmp_path / "out" / "bad_files.tsv").read_text()


@pytest.mark.parametrize("jobs", [1, 2])
def test_more_bad_files_than_may_be(jobs, tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "BATCH", 4)
    source, out = write_source(tmp_path / "source", utterances=20), tmp_path / "out"
    broken = [break_one(source, f"s0-v-{number}") for number in (0, 1, 12, 13, 2)]
    with pytest.raises(UserError) as error:
        convert_corpus(source, out, jobs=jobs, max_bad=0.05)
    message = str(error.value)
    assert message.startswith("4 of 60 files cannot be used, with max_bad=0.05 3 may be: ")
    assert message.count("cannot be read as audio") == 3
    assert f"{out}/bad_files.tsv lists them: repair or drop them" in message
    assert [line.split("\t")[1] for line in (out / "bad_files.tsv").read_text().splitlines()[1:]] == list(
        map(str, broken[:4])
    )
    made = audio_of(out)
    assert 0 < len(made) < 55
    assert not (out / "wav.scp").exists()
    # Nothing is lost: with the ceiling raised it goes on.
    before = {file: file.stat().st_mtime_ns for file in made}
    assert len(convert_corpus(source, out, jobs=jobs, max_bad=0.1).wav_scp) == 55
    assert before.items() <= {file: file.stat().st_mtime_ns for file in audio_of(out)}.items()


def test_the_ceiling(source, tmp_path):
    break_one(source, "s0-v-0")
    with pytest.raises(UserError, match=r"^1 of 9 files cannot be used, with max_bad=0 0 may be"):
        convert_corpus(source, tmp_path / "out", max_bad=0)
    break_one(source, "s0-v-1")
    with pytest.raises(UserError, match=r"^2 of 9 files cannot be used, with max_bad=0\.001 1 may be"):
        convert_corpus(source, tmp_path / "other")


def test_nothing_but_bad_files(source, tmp_path):
    for utterance in KaldiDir.read(source).wav_scp:
        break_one(source, utterance)
    with pytest.raises(UserError, match=r"source: none of its 9 utterances could be converted; see .*/bad_files\.tsv"):
        convert_corpus(source, tmp_path / "out", max_bad=1)
