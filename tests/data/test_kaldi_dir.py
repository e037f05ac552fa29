from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_directories import make_directory, make_segmented_directory, write_lines

from svtoolkit.data.kaldi_dir import KaldiDir, Segment, Utterance, parse_tables
from svtoolkit.data.tables import read_table, write_table
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.errors import UserError

IDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)
SECONDS = st.floats(min_value=1e-6, max_value=1e6)


@st.composite
def directories(draw: st.DrawFn) -> KaldiDir:
    utterances = draw(st.lists(IDS, min_size=1, max_size=6, unique=True))
    speakers = draw(st.lists(IDS, min_size=1, max_size=3))
    utt2spk = {utterance: draw(st.sampled_from(speakers)) for utterance in utterances}
    utt2dur = {utterance: draw(SECONDS) for utterance in utterances} if draw(st.booleans()) else {}
    # One of slashes and dots alone is no part of a path, and would leave the blanks before it at the end.
    names = IDS.filter(lambda name: name.strip("|") == name and name.strip("/."))
    if not draw(st.booleans()):
        wav_scp = {utterance: f"/corpus/{draw(names)}  {draw(names)}" for utterance in utterances}
        return KaldiDir(wav_scp, utt2spk, {}, utt2dur)
    recordings = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    segments = {}
    for utterance in utterances:
        start = draw(st.floats(0, 1e4))
        end = draw(st.none() | st.floats(start, 2e4, exclude_min=True))
        segments[utterance] = Segment(draw(st.sampled_from(recordings)), start, end)
    return KaldiDir({rec: f"/corpus/{draw(names)}.wav" for rec in recordings}, utt2spk, segments, utt2dur)


@given(kaldi_dir=directories())
@settings(max_examples=60, deadline=None)
def test_written_directory_reads_back(kaldi_dir, tmp_path_factory):
    """To the last bit: times that were rounded would shift an utterance by a sample."""
    folder = tmp_path_factory.mktemp("data")
    kaldi_dir.write(folder)
    tables = parse_tables(folder)
    read, faults = tables.kaldi_dir, tables.faults
    assert faults == []
    paths = {rec: str(kaldi_dir.audio_path(rec)) for rec in kaldi_dir.wav_scp}
    assert read == KaldiDir(paths, kaldi_dir.utt2spk, kaldi_dir.segments, kaldi_dir.utt2dur)
    assert read.utterances() == kaldi_dir.utterances()
    for file in folder.iterdir():
        lines = file.read_bytes().splitlines()
        assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    spk2utt = {spk: value.split() for spk, (_, value) in read_table(folder / "spk2utt", []).items()}
    assert spk2utt == kaldi_dir.spk2utt


def test_writing_removes_tables_that_no_longer_hold(tmp_path):
    data = make_segmented_directory(tmp_path)
    write_lines(data / "utt2dur", ["ann-1 0.15"])
    KaldiDir({"ann-1": "/a.wav"}, {"ann-1": "ann"}).write(data)
    assert not (data / "segments").exists()
    assert not (data / "utt2dur").exists()
    assert KaldiDir.read(data).wav_scp == {"ann-1": "/a.wav"}


def test_relative_paths_are_taken_from_the_root(tmp_path, monkeypatch):
    write_lines(tmp_path / "data" / "wav.scp", ["a-1 wav/a 1.wav", "a-2 /elsewhere/a-2.wav"])
    write_lines(tmp_path / "data" / "utt2spk", ["a-1 a", "a-2 a"])
    kaldi_dir = KaldiDir.read(tmp_path / "data", tmp_path / "corpus")
    assert kaldi_dir.audio_path("a-1") == tmp_path / "corpus" / "wav" / "a 1.wav"
    assert kaldi_dir.audio_path("a-2") == Path("/elsewhere/a-2.wav")
    monkeypatch.chdir(tmp_path)
    KaldiDir.read("data").write("copy")
    assert KaldiDir.read("copy", "anywhere").wav_scp["a-1"] == f"{tmp_path}/wav/a 1.wav"


def test_utterances_of_segments(tmp_path):
    kaldi_dir = KaldiDir.read(make_segmented_directory(tmp_path))
    tape = tmp_path / "audio" / "bob.flac"
    assert [kaldi_dir.utterance(f"bob-{n}") for n in (1, 2, 3)] == [
        Utterance("bob-1", "bob", tape, 0.0, 0.15, whole_file=False),
        Utterance("bob-2", "bob", tape, 0.1500625, 0.3 - 0.1500625, whole_file=False),
        Utterance("bob-3", "bob", tape, 0.3, None, whole_file=False),
    ]
    assert kaldi_dir.speakers == ["ann", "bob", "cid"]


@pytest.mark.parametrize("make", [make_directory, make_segmented_directory])
def test_subset(make, tmp_path):
    kaldi_dir = KaldiDir.read(make(tmp_path))
    subset = kaldi_dir.subset(["bob-3", "ann-1"])
    assert subset.utterances() == [kaldi_dir.utterance("ann-1"), kaldi_dir.utterance("bob-3")]
    assert len(subset.wav_scp) == 2
    assert set(subset.utt2dur) <= {"ann-1", "bob-3"}
    assert subset.spk2utt == {"ann": ["ann-1"], "bob": ["bob-3"]}


def test_order_is_that_of_bytes(tmp_path):
    """C locale: upper case before lower case, `-` before digits, by UTF-8 bytes beyond ASCII."""
    names = ["Zoe-1", "a-1", "a-10", "a0-1", "é-1", "\U0001d51e-1"]
    assert sorted(names) == sorted(names, key=str.encode) == names
    KaldiDir({name: f"/{n}.wav" for n, name in enumerate(names)}, dict.fromkeys(reversed(names), "x")).write(tmp_path)
    assert [line.split()[0] for line in (tmp_path / "utt2spk").read_text(encoding="utf-8").splitlines()] == names
    assert parse_tables(tmp_path).faults == []


def test_first_fault_stops_reading(tmp_path):
    data = make_directory(tmp_path)
    (data / "spk2utt").unlink()
    lines = (data / "wav.scp").read_text().splitlines()
    write_lines(data / "wav.scp", [lines[1], lines[0], *lines[2:]])
    assert len(KaldiDir.read(data).wav_scp) == 9, "order and spk2utt are no reason to refuse"
    write_lines(data / "wav.scp", [*lines[:-1], "cid-3 cat cid-3.sph |"])
    with pytest.raises(UserError) as error:
        KaldiDir.read(data)
    assert str(error.value).startswith(
        f"{data}/wav.scp:9: 'cat cid-3.sph |' is a command; commands of a list are never run unasked"
    )
    write_lines(data / "wav.scp", lines[2:])
    with pytest.raises(
        UserError, match=r"utt2spk:1: 'ann-1' is not in wav\.scp.* \(1 more; `svt validate .*` lists all\)"
    ):
        KaldiDir.read(data)


@pytest.mark.parametrize("line", [b"a-1\ta wav.wav\r", b"  a-1   a wav.wav  ", b"a-1 a wav.wav\n\n"])
def test_white_space_and_foreign_line_ends(line, tmp_path):
    (tmp_path / "wav.scp").write_bytes(line)
    faults: list = []
    assert read_table(tmp_path / "wav.scp", faults) == {"a-1": (1, "a wav.wav")}
    assert not faults


def test_paths_keep_the_white_space_inside(tmp_path):
    (tmp_path / "wav.scp").write_text("a-1 /a\tb  c.wav\n")
    assert read_table(tmp_path / "wav.scp", []) == {"a-1": (1, "/a\tb  c.wav")}


def test_utf16_list_is_named_as_such(tmp_path):
    (tmp_path / "wav.scp").write_bytes("a-1 /a.wav\na-2 /b.wav\n".encode("utf-16"))
    faults: list = []
    read_table(tmp_path / "wav.scp", faults)
    assert {(fault.code, fault.where) for fault in faults} >= {("encoding", "wav.scp:1"), ("encoding", "wav.scp:2")}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a b": "/x.wav"}, "expected a key without white space"),
        ({"": "/x.wav"}, "expected a key without white space"),
        ({"a": "/x\ny.wav"}, "a value on one line"),
        ({"a": "/x.wav "}, "without white space around it"),
        ({"a": ""}, "a value on one line"),
        ({"a": "/x\udcff.wav"}, "has no UTF-8 form; rename the file or folder"),
    ],
)
def test_entries_that_cannot_be_written(table, message, tmp_path):
    with pytest.raises(UserError, match=message):
        write_table(tmp_path / "wav.scp", table)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("a-1 r 0 nan", "malformed"),
        ("a-1 r nan 1", "malformed"),
        ("a-1 r inf -1", "malformed"),
        ("a-1 r one 2", "malformed"),
        ("a-1 r -0.5 1", "bad-segment"),
        ("a-1 r 1 -0.5", "bad-segment"),
        ("a-1 r 1 1", "bad-segment"),
    ],
)
def test_segments_without_sense(line, code, tmp_path):
    write_lines(tmp_path / "segments", [line])
    write_lines(tmp_path / "wav.scp", ["r /r.wav"])
    write_lines(tmp_path / "utt2spk", ["a-1 a"])
    tables = parse_tables(tmp_path)
    kaldi_dir, faults = tables.kaldi_dir, tables.faults
    assert kaldi_dir.segments == {}
    assert (code, "segments:1", "a-1") in [(fault.code, fault.where, fault.utterance) for fault in faults]


def test_single_utt2spk(tmp_path):
    write_lines(tmp_path / "utt2spk", ["b-1 b", "a-1 a"])
    assert read_utt2spk(tmp_path / "utt2spk") == {"b-1": "b", "a-1": "a"}
    write_lines(tmp_path / "utt2spk", ["b-1 b", "a-1 a a"])
    with pytest.raises(UserError, match=r"utt2spk:2: found 'a-1 a a', expected 2 columns"):
        read_utt2spk(tmp_path / "utt2spk")
    with pytest.raises(UserError, match="there is no such file; expected lines `utterance speaker`"):
        read_utt2spk(tmp_path / "gone")
