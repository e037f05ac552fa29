"""The training set: which utterances it takes, their classes, and when its fingerprint changes."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from small_directories import RATE, SPEAKERS, make_directory, make_segmented_directory, write_noise

from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.errors import UserError

SPEEDS = (1.0, 0.9, 1.1)


def build(data: Path, speeds=SPEEDS, min_seconds=0.1, **options) -> TrainingSet:
    return TrainingSet.build(Manifest.read(data), speeds=speeds, min_seconds=min_seconds, **options)


@pytest.fixture
def data(tmp_path):
    return make_directory(tmp_path)


def test_every_utterance_at_every_speed_is_an_entry_and_every_speaker_at_every_speed_a_class(data):
    training_set = build(data)
    assert len(training_set) == 27
    assert training_set.num_classes == 9
    assert training_set.speakers == list(SPEAKERS)
    seen = {}
    for entry in range(27):
        row, speed, _, label = training_set.entry(entry)
        utterance = training_set.utterances[row]
        assert label == SPEAKERS.index(utterance.speaker) + 3 * SPEEDS.index(speed)
        seen[utterance.utterance_id, speed] = label
    assert len(seen) == 27
    assert sorted(set(seen.values())) == list(range(9))
    assert [u.utterance_id for u in training_set.utterances] == sorted(u.utterance_id for u in training_set.utterances)


def test_warps_multiply_entries_and_classes(data):
    training_set = build(data, warps=(1.0, 1.1))
    assert len(training_set) == 54
    assert training_set.num_classes == 18
    entries = [training_set.entry(index) for index in range(54)]
    assert len({(entry.utterance, entry.speed, entry.warp) for entry in entries}) == 54
    for entry in entries:
        speaker = SPEAKERS.index(training_set.utterances[entry.utterance].speaker)
        assert entry.label == speaker + 3 * (SPEEDS.index(entry.speed) + 3 * entry.warp)
    unwarped = build(data)
    assert [unwarped.entry(index) for index in range(27)] == entries[:27], "whose classes stay where they were"


@pytest.mark.parametrize("jobs", [1, 3])
def test_durations_come_from_the_table_and_else_from_the_files(data, jobs):
    write_noise(data.parent / "audio" / "bob-2.wav", RATE // 2)
    np.testing.assert_allclose(build(data, jobs=jobs).seconds, 0.15)
    (data / "utt2dur").unlink()
    training_set = build(data, jobs=jobs)
    expected = [0.5 if utterance.utterance_id == "bob-2" else 0.15 for utterance in training_set.utterances]
    np.testing.assert_allclose(training_set.seconds, expected)


def test_durations_of_segments(tmp_path):
    training_set = build(make_segmented_directory(tmp_path))
    # The third segment of each speaker goes on to the end of a file of 0.6 s.
    expected = {"1": 0.15, "2": 0.3 - 0.1500625, "3": 0.3}
    names = [utterance.utterance_id for utterance in training_set.utterances]
    np.testing.assert_allclose(training_set.seconds, [expected[name[-1]] for name in names])


def test_short_utterances_are_left_out_and_counted(data, caplog):
    for number in (1, 2, 3):
        write_noise(data.parent / "audio" / f"bob-{number}.wav", RATE // 20)
    write_noise(data.parent / "audio" / "ann-1.wav", RATE // 10)
    (data / "utt2dur").unlink()
    with caplog.at_level(logging.INFO):
        training_set = build(data, min_seconds=0.1)
    assert "3 of 9 utterances are shorter than 0.1 s and left out" in caplog.text
    # bob has no utterance left and so no class; a duration of just min_seconds is long enough.
    assert training_set.speakers == ["ann", "cid"]
    assert training_set.num_classes == 6
    assert training_set.utterances.speaker_index.tolist() == [0, 0, 0, 1, 1, 1]


def test_nothing_left_is_refused(data):
    with pytest.raises(UserError, match=r"no training utterance of 0\.2 s or more is left; check the data"):
        build(data, min_seconds=0.2)


@pytest.mark.parametrize("factors", [(), (1.0, 1.0), (1.0, 0.0), (-0.9,)])
@pytest.mark.parametrize("key", ["speeds", "warps"])
def test_factors_must_be_different_and_above_zero(data, key, factors):
    with pytest.raises(UserError, match=rf"data\.{key} is \[.*\], expected different factors above 0"):
        build(data, **{key: factors})


def test_a_file_whose_length_is_needed_and_cannot_be_read_is_named(data):
    (data.parent / "audio" / "cid-1.wav").write_bytes(b"no audio")
    assert len(build(data)) == 27, "the table says how long it is"
    (data / "utt2dur").unlink()
    with pytest.raises(UserError, match=r"1 of 9 audio files cannot be used: .*cid-1\.wav: cannot be read as audio"):
        build(data)


def drop_utterance(data: Path) -> None:
    for name in ("utt2spk", "wav.scp", "utt2dur"):
        lines = (data / name).read_text().splitlines(keepends=True)
        (data / name).write_text("".join(line for line in lines if not line.startswith("ann-3")))
    (data / "spk2utt").unlink()


def lengthen(data: Path) -> None:
    (data / "utt2dur").write_text((data / "utt2dur").read_text().replace("bob-1 0.15", "bob-1 0.1502"))


def test_the_fingerprint_stays_while_the_data_do(data, tmp_path):
    before = build(data).fingerprint()
    assert build(data).fingerprint() == before
    assert build(data, jobs=2).fingerprint() == before
    # Where the files lie is no part of it: corpora are moved.
    elsewhere = make_directory(tmp_path / "elsewhere")
    assert build(elsewhere).fingerprint() == before


@pytest.mark.parametrize("change", [drop_utterance, lengthen])
def test_the_fingerprint_changes_with_the_utterances(data, change):
    before = build(data).fingerprint()
    change(data)
    assert build(data).fingerprint() != before


def test_the_fingerprint_changes_with_speakers_speeds_and_warps(data):
    before = build(data).fingerprint()
    assert build(data, warps=(1.0,)).fingerprint() == before
    assert build(data, warps=(1.0, 0.9)).fingerprint() != before
    assert build(data, speeds=(1.0, 1.1, 0.9)).fingerprint() != before
    assert build(data, speeds=(1.0,)).fingerprint() != before
    utt2spk = (data / "utt2spk").read_text()
    (data / "utt2spk").write_text(utt2spk.replace("cid-2 cid", "cid-2 bob"))
    (data / "spk2utt").unlink()
    assert build(data).fingerprint() != before


def test_the_fingerprint_changes_with_the_place_of_a_segment(tmp_path):
    data = make_segmented_directory(tmp_path)
    before = build(data).fingerprint()
    segments = (data / "segments").read_text()
    (data / "segments").write_text(segments.replace("bob-1 tape-bob 0.0 0.15", "bob-1 tape-bob 0.05 0.2"))
    training_set = build(data)
    np.testing.assert_allclose(training_set.seconds[3], 0.15)
    assert training_set.fingerprint() != before
