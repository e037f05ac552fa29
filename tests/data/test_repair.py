from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from broken_directories import BROKEN, Broken, edit
from small_directories import (
    RATE,
    SAMPLES,
    UTTERANCES,
    make_directory,
    make_segmented_directory,
    write_lines,
    write_noise,
)

from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.repair import repair
from svtoolkit.data.trials import read_trials
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def keys(path: Path) -> list[str]:
    return [line.split()[0] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_every_fault_is_repaired(broken: Broken, tmp_path):
    data, out = broken.make(tmp_path), tmp_path / "repaired"
    before = contents(data)
    result = repair(data, out, **broken.options)
    assert validate(out, **broken.options).faults == []
    assert tuple(utterance for utterance, _ in result.dropped) == broken.drops
    assert all(reason for _, reason in result.dropped)
    left = [utterance for utterance in UTTERANCES if utterance not in broken.drops]
    for name in ("utt2spk", "utt2dur", "utt2lang"):
        assert keys(out / name) == left, name
    assert contents(data) == before


def test_all_faults_at_once(tmp_path):
    data, out = make_directory(tmp_path), tmp_path / "repaired"
    (tmp_path / "audio" / "ann-1.wav").write_bytes(b"")
    write_noise(tmp_path / "audio" / "bob-3.wav", SAMPLES // 2, rate=8000)
    edit("utt2spk", "cid-1 cid\n", "cid-1 cid\ncid-1 ann\n")(data)
    (data / "spk2utt").unlink()
    edit("trials", "ann-1 ann-2 target", "ann-2 ann-3 target\nann-2 ann-3 perhaps")(data)
    result = repair(data, out, jobs=3)
    assert [(utterance, reason.rsplit("[")[-1]) for utterance, reason in result.dropped] == [
        ("ann-1", "unreadable-audio]"),
        ("bob-3", "sample-rate]"),
        ("cid-1", "duplicate]"),
    ]
    assert validate(out).faults == []
    trials = read_trials(out / "trials")
    assert trials.utterances == {"ann-2", "ann-3", "bob-1", "bob-2", "cid-2"}
    assert list(zip(trials.enrol, trials.test, trials.target.tolist(), strict=True)) == [
        ("ann-2", "ann-3", True),
        ("bob-1", "bob-2", True),
        ("ann-2", "bob-2", False),
        ("bob-2", "cid-2", False),
    ]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("segmented", [False, True])
def test_faults_in_any_combination(segmented, seed, tmp_path):
    data = (make_segmented_directory if segmented else make_directory)(tmp_path)
    fitting = [broken for broken in BROKEN if broken.segmented == segmented and not broken.options]
    names = []
    for broken in random.Random(seed).sample(fitting, 4):
        try:
            broken.change(data)
            names.append(str(broken))
        except (AssertionError, FileNotFoundError, UnicodeDecodeError):
            continue  # an earlier one has taken away what this one would break
    assert len(names) > 1
    assert not validate(data).ok
    repair(data, tmp_path / "repaired")
    assert validate(tmp_path / "repaired").faults == [], names


def test_sound_directory_is_copied(tmp_path):
    data, out = make_directory(tmp_path), tmp_path / "repaired"
    (data / "notes.md").write_text("mine")
    result = repair(data, out)
    assert result.dropped == []
    assert result.rewritten == []
    assert result.left_out == [("notes.md", "not a table of utterances or speakers")]
    original = contents(data)
    del original["notes.md"]
    assert contents(out) == original


def test_durations_are_measured_and_what_changed_is_named(tmp_path):
    data, out = make_segmented_directory(tmp_path), tmp_path / "repaired"
    (data / "spk2utt").unlink()
    result = repair(data, out)
    assert result.rewritten == ["spk2utt", "utt2dur"]
    durations = KaldiDir.read(out).utt2dur
    for speaker in ("ann", "bob", "cid"):
        assert durations[f"{speaker}-1"] == SAMPLES / RATE
        assert durations[f"{speaker}-2"] == (SAMPLES - 1) / RATE
        assert durations[f"{speaker}-3"] == 2 * SAMPLES / RATE


def test_majority_rate_is_kept_unless_another_is_asked_for(tmp_path):
    data = make_directory(tmp_path)
    for utterance in ("ann-2", "bob-2"):
        write_noise(tmp_path / "audio" / f"{utterance}.wav", SAMPLES // 2, rate=8000)
    repair(data, tmp_path / "majority")
    assert keys(tmp_path / "majority" / "utt2spk") == [utt for utt in UTTERANCES if utt not in ("ann-2", "bob-2")]
    repair(data, tmp_path / "narrow", sample_rate=8000)
    assert keys(tmp_path / "narrow" / "utt2spk") == ["ann-2", "bob-2"]
    assert validate(tmp_path / "narrow", sample_rate=8000).ok


def test_shared_speakers_and_utterances_go(tmp_path):
    data, other, out = make_directory(tmp_path), tmp_path / "eval", tmp_path / "repaired"
    write_lines(other / "utt2spk", ["bob-9 bob", "cid-2 zoe"])
    result = repair(data, out, against=[other])
    assert [utterance for utterance, _ in result.dropped] == ["bob-1", "bob-2", "bob-3", "cid-2"]
    assert keys(out / "spk2gender") == ["ann", "cid"]
    assert (out / "spk2utt").read_text() == "ann ann-1 ann-2 ann-3\ncid cid-1 cid-3\n"
    assert validate(out, against=[other]).ok


def test_list_without_both_kinds_of_trial_is_left_out(tmp_path):
    data, other, out = make_directory(tmp_path), tmp_path / "eval", tmp_path / "repaired"
    write_lines(other / "utt2spk", ["bob-9 bob"])
    result = repair(data, out, against=[other])
    assert not (out / "trials").exists()
    assert result.left_out == [("trials", "target and nontarget trials of the utterances that stay are not both left")]


def test_relative_paths_become_absolute(tmp_path, monkeypatch):
    data, out = make_directory(tmp_path), tmp_path / "repaired"
    write_lines(data / "wav.scp", [f"{utt} audio/{utt}.wav" for utt in UTTERANCES])
    repair(data, out, root=tmp_path)
    monkeypatch.chdir(out)
    assert validate(out).ok


def test_tables_alone(tmp_path):
    data = make_directory(tmp_path)
    (tmp_path / "audio" / "bob-2.wav").unlink()
    edit("utt2spk", "cid-3 cid\n", "")(data)
    repair(data, tmp_path / "complete", check_audio=False)
    assert keys(tmp_path / "complete" / "utt2dur") == list(UTTERANCES[:-1])
    edit("utt2dur", "ann-1 0.15\n", "")(data)
    result = repair(data, tmp_path / "incomplete", check_audio=False)
    assert not (tmp_path / "incomplete" / "utt2dur").exists()
    assert ("utt2dur", "incomplete") in result.left_out
    for name in ("complete", "incomplete"):
        assert validate(tmp_path / name, check_audio=False).ok


def test_unused_recording_with_the_name_of_an_utterance(tmp_path):
    data, out = make_segmented_directory(tmp_path), tmp_path / "repaired"
    edit("wav.scp", "tape-ann", "bob-1 /nowhere.wav\ntape-ann")(data)
    assert repair(data, out).dropped == []
    assert validate(out).ok


def test_nothing_remains(tmp_path):
    data = make_directory(tmp_path)
    (data / "spk2utt").unlink()
    for utterance in UTTERANCES:
        (tmp_path / "audio" / f"{utterance}.wav").unlink()
    with pytest.raises(
        UserError,
        match=r"no utterance would remain of 9 \(no-spk2utt 1, missing-audio 9\).*the first reason: wav.scp:1",
    ):
        repair(data, tmp_path / "repaired")
    assert not (tmp_path / "repaired").exists()


@pytest.mark.parametrize("name", ["wav.scp", "utt2spk"])
def test_missing_table_leaves_nothing(name, tmp_path):
    data = make_directory(tmp_path)
    (data / name).unlink()
    with pytest.raises(UserError, match=r"no utterance would remain .*missing-table 1"):
        repair(data, tmp_path / "repaired")


@pytest.mark.parametrize("exists", [False, True])
def test_a_full_disk_leaves_no_half_of_a_copy(exists, tmp_path, monkeypatch):
    data, out = make_directory(tmp_path), tmp_path / "repaired"
    if exists:
        out.mkdir()
    with monkeypatch.context() as patched:

        def fill_up(path: Path, table: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        patched.setattr("svtoolkit.data.repair.write_table", fill_up)
        (data / "utt2gender").write_text("ann-1 f\n")
        with pytest.raises(OSError, match="No space left on device") as found:
            repair(data, out)
    assert found.value.filename == str(out / "utt2gender")
    assert sorted(os.listdir(tmp_path)) == sorted(["audio", "data", *(["repaired"] if exists else [])])
    repair(data, out)
    assert (out / "utt2gender").read_text() == "ann-1 f\n"


def test_target_must_be_free_and_elsewhere(tmp_path):
    data = make_directory(tmp_path)
    before = contents(data)
    for out in (data, data / "fixed", tmp_path / "x" / ".." / "data"):
        with pytest.raises(UserError, match="may not be written into the directory that is repaired"):
            repair(data, out)
    for out in (tmp_path / "audio", tmp_path / "audio" / "ann-1.wav"):
        with pytest.raises(UserError, match="expected an empty or a new folder"):
            repair(data, out)
    assert contents(data) == before
    (tmp_path / "empty").mkdir()
    repair(data, tmp_path / "empty")
    assert validate(tmp_path / "empty").ok
