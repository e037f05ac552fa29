"""Bad audio taken out of a data directory: out of all its tables, onto its list, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from bad_audio import with_bad_files
from speech_material import RATE

from svtoolkit.data.bad_files import read_bad_files
from svtoolkit.data.dropping import drop_bad_audio
from svtoolkit.data.kaldi_dir import KaldiDir, Segment
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError

BAD = {"spk1-utt2": "nan", "spk3-utt0": "broken", "spk4-utt4": "zeros", "spk6-utt1": "silent", "spk7-utt5": "gone"}


@pytest.fixture
def data(speech, tmp_path) -> Path:
    folder = with_bad_files(speech, tmp_path, BAD)
    names = sorted(KaldiDir.read(folder).utt2spk)
    (folder / "utt2lang").write_text("".join(f"{name} en\n" for name in names))
    (folder / "bad_files.tsv").write_text("utterance\tfile\treason\nold\t/a/old.m4a\tcut off\n")
    return folder


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_they_leave_all_tables_and_are_listed(data):
    before = KaldiDir.read(data)
    dropped, left = drop_bad_audio(data, validate(data), max_bad=0.2)
    assert {item.utterance_id for item in dropped} == BAD.keys()
    assert left.ok
    assert (left.utterances, left.speakers) == (48 - len(BAD), 8)
    after = KaldiDir.read(data)
    assert after.wav_scp == {name: path for name, path in before.wav_scp.items() if name not in BAD}
    assert after.utt2dur == {name: seconds for name, seconds in before.utt2dur.items() if name not in BAD}
    assert validate(data).ok
    assert not {line.split()[0] for line in (data / "utt2lang").read_text().splitlines()} & BAD.keys()
    listed = {item.utterance_id: item for item in read_bad_files(data)}
    assert listed.keys() == BAD.keys() | {"old"}
    assert listed["spk4-utt4"].path == str(data.parent / "audio" / "spk4-utt4.wav")
    assert "is silent" in listed["spk4-utt4"].reason
    again = tables(data)
    assert drop_bad_audio(data, validate(data), max_bad=0.2)[0] == []
    assert tables(data) == again


def test_more_than_may_be_change_nothing(data):
    before = tables(data)
    with pytest.raises(UserError, match=r"^5 of 48 files cannot be used, with max_bad=0\.05 2 may be: "):
        drop_bad_audio(data, validate(data), max_bad=0.05)
    assert tables(data) == before


def test_what_is_in_a_trial_stays_and_is_a_fault(data):
    (data / "trials").write_text("spk1-utt2 spk1-utt3 target\nspk0-utt0 spk1-utt3 nontarget\n")
    dropped, left = drop_bad_audio(data, validate(data), max_bad=0.2)
    assert {item.utterance_id for item in dropped} == BAD.keys() - {"spk1-utt2"}
    assert [fault.code for fault in left.faults if fault.utterance] == ["not-finite"]
    assert "spk1-utt2" in KaldiDir.read(data).utt2spk


def test_faulty_tables_are_left_as_they_are(data):
    with (data / "utt2spk").open("a") as stream:
        stream.write("spk9-utt9\n")
    before = tables(data)
    dropped, left = drop_bad_audio(data, validate(data), max_bad=0.5)
    assert not dropped
    assert len(left.faults) > len(BAD)
    assert tables(data) == before


def test_a_recording_goes_when_none_of_its_segments_stays(tmp_path):
    samples = np.random.default_rng(0).normal(0, 0.1, 3 * RATE)
    samples[RATE : 2 * RATE] = 0
    for name, content in (("a", samples), ("b", np.zeros(RATE))):
        soundfile.write(tmp_path / f"{name}.wav", content, RATE)
    segments = {"x-1": Segment("a", 0.0, 1.0), "x-2": Segment("a", 1.0, 2.0), "y-1": Segment("b", 0.0, 1.0)}
    paths = {name: str(tmp_path / f"{name}.wav") for name in "ab"}
    KaldiDir(paths, {"x-1": "x", "x-2": "x", "y-1": "y"}, segments).write(tmp_path / "data")
    dropped, left = drop_bad_audio(tmp_path / "data", validate(tmp_path / "data"), max_bad=0.9)
    assert [(item.utterance_id, item.path) for item in dropped] == [("x-2", paths["a"]), ("y-1", paths["b"])]
    after = KaldiDir.read(tmp_path / "data")
    assert (after.utt2spk, after.wav_scp) == ({"x-1": "x"}, {"a": paths["a"]})
    assert left.ok
    assert validate(tmp_path / "data").ok


def test_of_shards_the_index_alone_changes(speech, tmp_path):
    source = with_bad_files(speech, tmp_path / "source", {"spk4-utt4": "zeros"})
    write_shards(KaldiDir.read(source), tmp_path / "shards", per_shard=20)
    before = {path.name: path.read_bytes() for path in (tmp_path / "shards").glob("*.tar")}
    dropped, left = drop_bad_audio(tmp_path / "shards", validate(tmp_path / "shards"), max_bad=0.1)
    assert [item.utterance_id for item in dropped] == ["spk4-utt4"]
    assert left.ok
    assert validate(tmp_path / "shards").ok
    assert "spk4-utt4" not in (tmp_path / "shards" / "shards.scp").read_text()
    assert {path.name: path.read_bytes() for path in (tmp_path / "shards").glob("*.tar")} == before
