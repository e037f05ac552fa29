"""Data directories as arrays: the same utterances and the same refusals as those of the careful reader."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from broken_directories import BROKEN
from small_directories import SPEAKERS, UTTERANCES, make_directory, make_segmented_directory, write_lines

from svtoolkit.crops import manifest as manifest_module
from svtoolkit.crops.manifest import Manifest
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.errors import UserError


@pytest.fixture
def data(tmp_path):
    return make_directory(tmp_path)


@pytest.fixture
def arrays_alone(monkeypatch):
    """The careful reader must not be needed."""

    def refuse(*arguments):
        raise AssertionError("the directory was not read as arrays")

    monkeypatch.setattr(KaldiDir, "read", refuse)


def test_a_regular_directory_is_read_as_arrays(data, arrays_alone):
    manifest = Manifest.read(data)
    assert [utterance.utterance_id for utterance in manifest] == list(UTTERANCES)
    assert list(manifest.speakers) == list(SPEAKERS)
    assert manifest.speaker_index.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    np.testing.assert_array_equal(manifest.seconds, 0.15)


@pytest.mark.parametrize("missing", [(), ("utt2dur",), ("spk2utt",), ("utt2dur", "spk2utt")])
def test_arrays_and_tables_say_the_same(data, missing):
    for name in missing:
        (data / name).unlink()
    careful = Manifest.of(KaldiDir.read(data))
    assert list(Manifest.read(data)) == list(careful) == KaldiDir.read(data).utterances()
    assert Manifest.read(data).fingerprint() == careful.fingerprint()


def test_relative_paths_are_taken_from_the_root(data, arrays_alone, tmp_path):
    (data / "wav.scp").write_text((data / "wav.scp").read_text().replace(f"{tmp_path}/", ""))
    assert Manifest.read(data)[0].path == Path("audio/ann-1.wav")
    assert Manifest.read(data, tmp_path)[0].path == tmp_path / "audio/ann-1.wav"


def test_segments_and_irregular_tables_go_through_the_careful_reader(tmp_path):
    segmented = make_segmented_directory(tmp_path / "segmented")
    assert list(Manifest.read(segmented)) == KaldiDir.read(segmented).utterances()
    unsorted = make_directory(tmp_path / "unsorted")
    write_lines(unsorted / "utt2spk", [f"{utterance} {utterance[:3]}" for utterance in reversed(UTTERANCES)])
    assert list(Manifest.read(unsorted)) == KaldiDir.read(unsorted).utterances()


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_what_the_careful_reader_refuses_is_refused_with_its_sentence(broken, tmp_path):
    data = broken.make(tmp_path)
    found = [read_or_refusal(reader, data) for reader in (Manifest.read, KaldiDir.read)]
    assert found[0] == found[1]


def read_or_refusal(reader: Callable[[Path], Manifest | KaldiDir], data: Path) -> list[Utterance] | str:
    try:
        read = reader(data)
    except UserError as error:
        return str(error)
    return read.utterances() if isinstance(read, KaldiDir) else list(read)


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1", "1s"])
def test_durations_that_are_none_are_refused(data, seconds):
    (data / "utt2dur").write_text((data / "utt2dur").read_text().replace("bob-1 0.15", f"bob-1 {seconds}"))
    with pytest.raises(UserError, match=rf"utt2dur:4: found '{seconds}', expected a duration in seconds above 0"):
        Manifest.read(data)


@pytest.mark.parametrize(
    "lines",
    [
        ["ann ann-1 ann-2 ann-3 bob bob-1 bob-2 bob-3", "cid cid-1 cid-2 cid-3"],
        ["ann ann-1 ann-2", "bob ann-3 bob-1 bob-2 bob-3", "cid cid-1 cid-2 cid-3"],
        ["ann ann-1 ann-2 ann-3", "bob bob-1 bob-2 bob-3"],
    ],
)
def test_another_spk2utt_is_refused(data, lines):
    write_lines(data / "spk2utt", lines)
    with pytest.raises(UserError, match="differ from those of utt2spk"):
        Manifest.read(data)


def test_speakers_whose_utterances_are_not_together(tmp_path, arrays_alone):
    data = tmp_path / "data"
    names = {"a1": "zoe", "a2": "ann", "a3": "zoe"}
    write_lines(data / "wav.scp", [f"{name} /audio/{name}.wav" for name in names])
    write_lines(data / "utt2spk", [f"{name} {speaker}" for name, speaker in names.items()])
    write_lines(data / "spk2utt", ["ann a2", "zoe a1 a3"])
    manifest = Manifest.read(data)
    assert manifest.speakers == ["ann", "zoe"]
    assert manifest.speaker_index.tolist() == [1, 0, 1]
    assert manifest.utterance_counts() == {"ann": 1, "zoe": 2}


def test_speakers_apart(data):
    rest, chosen = Manifest.read(data).of_speakers({"bob"})
    assert [utterance.utterance_id for utterance in chosen] == ["bob-1", "bob-2", "bob-3"]
    assert chosen.speakers == ["bob"]
    assert rest.speakers == ["ann", "cid"]
    assert {utterance.speaker for utterance in rest} == {"ann", "cid"}
    assert [utterance.utterance_id for utterance in rest[2:4]] == ["ann-3", "cid-1"]


@pytest.mark.parametrize("make", [make_directory, make_segmented_directory])
def test_tables_written_from_a_manifest_are_the_same_utterances(make, tmp_path):
    manifest = Manifest.read(make(tmp_path))
    manifest.kaldi_dir().write(tmp_path / "again")
    assert list(Manifest.read(tmp_path / "again")) == list(manifest)


def test_durations_of_some_are_left_out_of_the_tables(data):
    manifest = Manifest.read(data)
    some = replace(manifest, seconds=np.where(np.arange(9) == 4, np.nan, manifest.seconds))
    assert some.kaldi_dir().utt2dur == {}
    assert manifest.kaldi_dir().utt2dur == dict.fromkeys(UTTERANCES, 0.15)


def test_the_fingerprint_is_of_what_is_heard_and_by_whom(data, monkeypatch):
    manifest = Manifest.read(data)
    before = manifest.fingerprint()
    monkeypatch.setattr(manifest_module, "BLOCK_ROWS", 9)
    assert replace(manifest, locations=manifest.ids).fingerprint() == before
    changed = [
        manifest.take(np.arange(8)),
        replace(manifest, speaker_index=manifest.speaker_index[::-1]),
        replace(manifest, speakers=["ann", "bob", "dan"]),
        replace(manifest, seconds=manifest.seconds + (np.arange(9) == 3) * 2e-4),
        replace(manifest, offsets=np.zeros(9)),
    ]
    assert len({before, *(each.fingerprint() for each in changed)}) == 6


def test_it_travels_to_other_processes(data):
    manifest = Manifest.read(data)
    assert list(pickle.loads(pickle.dumps(manifest))) == list(manifest)


def test_an_utterance_costs_its_text_and_a_few_numbers(tmp_path, arrays_alone):
    """The line of wav.scp and 52 bytes of numbers: no Python object grows with the number of utterances."""
    names = [f"id{number // 200:05d}-{number:011d}-00001" for number in range(20_000)]
    write_lines(tmp_path / "wav.scp", [f"{name} /corpora/{name[:7]}/{name[8:19]}/00001.flac" for name in names])
    write_lines(tmp_path / "utt2spk", [f"{name} {name[:7]}" for name in names])
    write_lines(tmp_path / "utt2dur", [f"{name} 7.1234" for name in names])
    manifest = Manifest.read(tmp_path)
    assert manifest.ids.text is manifest.locations.text
    columns = [manifest.ids, manifest.locations]
    arrays = [manifest.ids.text, *(array for column in columns for array in (column.starts, column.ends))]
    arrays += [manifest.speaker_index, manifest.seconds, manifest.offsets]
    assert sum(array.nbytes for array in arrays) == (tmp_path / "wav.scp").stat().st_size + 20_000 * (4 * 8 + 4 + 2 * 8)
    assert isinstance(manifest.speakers, list)
    assert len(manifest.speakers) == 100
