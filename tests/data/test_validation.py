from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from broken_directories import BROKEN, Broken, edit, replace_audio, with_value
from paths import SHARED
from small_directories import (
    RATE,
    SAMPLES,
    UTTERANCES,
    make_directory,
    make_segmented_directory,
    write_lines,
    write_noise,
)

from svtoolkit.data import audio_survey
from svtoolkit.data.audio_survey import survey_recording
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.validation import Validation, validate
from svtoolkit.errors import UserError

DATA = SHARED / "data"


def codes(validation: Validation) -> set[str]:
    return {fault.code for fault in validation.faults}


@pytest.mark.parametrize("make", [make_directory, make_segmented_directory])
def test_sound_directory_has_no_fault_and_is_counted(make, tmp_path):
    validation = validate(make(tmp_path))
    assert validation.ok
    assert validation.faults == []
    assert (validation.speakers, validation.utterances) == (3, 9)
    assert validation.rates == ({RATE: 9} if make is make_directory else {RATE: 3})
    samples = 9 * SAMPLES if make is make_directory else 3 * (SAMPLES + (SAMPLES - 1) + 2 * SAMPLES)
    assert validation.hours == pytest.approx(samples / RATE / 3600, rel=1e-12)


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_fault_is_found_where_it_is(broken: Broken, tmp_path):
    validation = validate(broken.make(tmp_path), **broken.options)
    found = [fault for fault in validation.faults if fault.code == broken.code]
    assert any(fault.where == broken.where and broken.says in fault.message for fault in found), validation.faults
    assert codes(validation) == {broken.code, *broken.also}
    assert not validation.ok


@pytest.mark.parametrize("name", ["wav.scp", "utt2spk"])
def test_missing_table(name, tmp_path):
    data = make_directory(tmp_path)
    (data / name).unlink()
    (data / "spk2utt").unlink(missing_ok=True)
    faults = [fault for fault in validate(data).faults if fault.code != "no-spk2utt"]
    assert [(fault.code, fault.where, fault.message) for fault in faults] == [
        ("missing-table", name, "the file is missing; every data directory needs it")
    ], "one fault, and not another one of every utterance"


def test_shards_without_their_index(tmp_path):
    """What is missing is the index, and no wav.scp."""
    data = make_directory(tmp_path)
    (data / "wav.scp").unlink()
    (data / "shards.sha256").write_text(f"{'0' * 64}  shard-000000.tar\n")
    missing = [fault for fault in validate(data).faults if fault.code == "missing-table"]
    assert [fault.where for fault in missing] == ["shards.scp", "shards.scp"]
    assert "copy it, or run `svt shard` again, which writes it last" in missing[0].message
    with pytest.raises(UserError, match=r"shards\.scp: the file is missing, which finds the utterances in the shards"):
        KaldiDir.read(data)


def test_faults_add_up_and_do_not_depend_on_jobs(tmp_path):
    """One directory with many faults: all are listed, in the same order with any number of threads."""
    data = make_directory(tmp_path)
    (tmp_path / "audio" / "ann-1.wav").unlink()
    replace_audio("ann-2.wav", np.zeros(SAMPLES))(data)
    write_noise(tmp_path / "audio" / "bob-1.wav", SAMPLES // 2, rate=8000)
    write_noise(tmp_path / "audio" / "bob-2.wav", channels=2)
    edit("utt2dur", "cid-1 0.15", "cid-1 9")(data)
    edit("trials", "ann-1 ann-2 target", "ann-1 ann-2 same")(data)
    one = validate(data, against=[data])
    assert codes(one) == {
        *("missing-audio", "silent-audio", "sample-rate", "multi-channel", "wrong-duration"),
        *("malformed-trial", "shared-speaker", "shared-utterance"),
    }
    for jobs in (2, 5):
        assert validate(data, against=[data], jobs=jobs) == one


def test_sample_rate_that_is_asked_for(tmp_path):
    data = make_directory(tmp_path)
    assert validate(data, sample_rate=RATE).ok
    validation = validate(data, sample_rate=8000)
    assert [fault.utterance for fault in validation.faults] == list(UTTERANCES)
    assert "'ann-1' has 16000 Hz, expected 8000 Hz (recordings: 16000 Hz: 9)" in validation.faults[0].message


@pytest.mark.parametrize(("narrow", "expected"), [(5, 8000), (4, RATE)])
def test_most_frequent_rate_is_expected(narrow, expected, tmp_path):
    data = make_directory(tmp_path)
    for utterance in UTTERANCES[:narrow]:
        write_noise(tmp_path / "audio" / f"{utterance}.wav", SAMPLES // 2, rate=8000)
    validation = validate(data)
    other = UTTERANCES[narrow:] if expected == 8000 else UTTERANCES[:narrow]
    assert [(fault.code, fault.utterance) for fault in validation.faults] == [("sample-rate", utt) for utt in other]


def test_chosen_channel_alone_is_judged(tmp_path):
    data = make_directory(tmp_path)
    for utterance in UTTERANCES:
        noise = np.random.default_rng(0).uniform(-0.1, 0.1, SAMPLES)
        soundfile.write(tmp_path / "audio" / f"{utterance}.wav", np.stack([noise, 0 * noise], axis=1), RATE)
    assert validate(data, channel=0).ok
    assert codes(validate(data, channel=1)) == {"silent-audio"}
    assert codes(validate(data)) == {"multi-channel"}


@pytest.mark.parametrize(
    ("seconds", "listed", "ok"),
    [(1.0, 1.049, True), (1.0, 1.051, False), (1.0, 0.949, False), (20.0, 20.19, True), (20.0, 20.21, False)],
)
def test_tolerance_of_durations_is_50_ms_or_1_percent(seconds, listed, ok, tmp_path):
    data = make_directory(tmp_path)
    write_noise(tmp_path / "audio" / "bob-2.wav", round(seconds * RATE))
    edit("utt2dur", "bob-2 0.15", f"bob-2 {listed}")(data)
    assert codes(validate(data)) == (set() if ok else {"wrong-duration"})


def test_segment_may_overshoot_by_a_rounding(tmp_path):
    data = make_segmented_directory(tmp_path)
    edit("segments", "bob-3 tape-bob 0.3 -1", "bob-3 tape-bob 0.3 0.64")(data)
    assert validate(data).ok
    edit("segments", "bob-3 tape-bob 0.3 0.64", "bob-3 tape-bob 0.3 0.66")(data)
    assert codes(validate(data)) == {"beyond-end"}


def test_root_of_relative_paths(tmp_path, monkeypatch):
    data = make_directory(tmp_path)
    write_lines(data / "wav.scp", [f"{utt} audio/{utt}.wav" for utt in UTTERANCES])
    monkeypatch.chdir(data)
    assert validate(data, root=tmp_path).ok
    assert codes(validate(data)) == {"missing-audio"}


def test_shared_speakers_and_utterances(tmp_path):
    train, other = make_directory(tmp_path / "train"), tmp_path / "eval"
    write_lines(other / "utt2spk", ["bob-9 bob", "cid-2 zoe"])
    validation = validate(train, against=[other])
    assert [(fault.code, fault.where, fault.speaker, fault.utterance) for fault in validation.faults] == [
        ("shared-speaker", "utt2spk:4", "bob", None),
        ("shared-utterance", "utt2spk:8", None, "cid-2"),
    ]
    assert f"speaker 'bob' (3 utterances) is also in {other}" in validation.faults[0].message
    assert f"utterance 'cid-2' is also in {other}" in validation.faults[1].message


def test_tables_alone(tmp_path):
    data = make_directory(tmp_path)
    (tmp_path / "audio" / "bob-2.wav").unlink()
    calls: list[int] = []
    validation = validate(data, check_audio=False, progress=calls.append)
    assert validation.ok
    assert not validation.rates
    assert not calls
    assert validation.hours == pytest.approx(9 * 0.15 / 3600)
    edit("utt2spk", "bob-2 bob", "bob-2 cid")(data)
    assert codes(validate(data, check_audio=False)) == {"spk2utt-mismatch", "trial-label"}


@pytest.mark.parametrize("jobs", [1, 3])
def test_progress_counts_recordings(jobs, tmp_path):
    calls: list[int] = []
    validate(make_directory(tmp_path), jobs=jobs, progress=calls.append)
    assert calls == list(range(1, 10))


def test_every_recording_is_opened_once(tmp_path, monkeypatch):
    opened: list[Path] = []
    real = audio_survey.open_audio
    monkeypatch.setattr(audio_survey, "open_audio", lambda path: opened.append(path) or real(path))
    validate(make_segmented_directory(tmp_path))
    assert [path.name for path in opened] == ["ann.flac", "bob.flac", "cid.flac"]


def test_other_trial_lists_are_checked(tmp_path):
    data = make_directory(tmp_path)
    write_lines(data / "trials_hard", ["ann-1 ann-2 target", "ann-1 zoe-1 nontarget"])
    write_lines(data / "trials.bak", ["not a list"])
    assert [(fault.code, fault.where) for fault in validate(data).faults] == [
        ("unknown-trial-utterance", "trials_hard:2")
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs is 0, expected 1 or more"),
        ({"sample_rate": 0}, "sample_rate is 0"),
        ({"channel": -1}, "channel is -1, expected 0 or more"),
        ({"check_audio": False, "sample_rate": 8000}, "leave them out or set check_audio=true"),
        ({"check_audio": False, "channel": 0}, "leave them out or set check_audio=true"),
        ({"against": ["/nowhere"]}, "/nowhere: there is no utt2spk to compare with"),
    ],
)
def test_impossible_options(options, message, tmp_path):
    data = make_directory(tmp_path)
    with pytest.raises(UserError, match=message):
        validate(data, **options)


def test_no_directory(tmp_path):
    with pytest.raises(UserError, match="no such data directory; expected a folder with wav"):
        validate(tmp_path / "nowhere")


def test_survey_in_blocks_agrees_with_the_whole_file(tmp_path, monkeypatch):
    """Stretches that begin, end and lie across block borders have the extremes of their samples."""
    path = write_noise(tmp_path / "long.wav", 10 * SAMPLES)
    whole, _ = soundfile.read(path, dtype="float32")
    monkeypatch.setattr(audio_survey, "BLOCK", 1000)
    bounds = {"a": (0, 999), "b": (500, 2500), "c": (1000, 2000), "d": (2999, 3001), "e": (23000, None)}
    stretches = {key: (first / RATE, None if stop is None else stop / RATE) for key, (first, stop) in bounds.items()}
    survey = survey_recording(path, stretches)
    assert survey.samples == len(whole)
    for key, (first, stop) in bounds.items():
        piece = whole[first:stop]
        extent = survey.extents[key]
        assert (extent.samples, extent.low, extent.high) == (len(piece), piece.min(), piece.max())
    assert survey.extents["a"].peak_dbfs == pytest.approx(20 * np.log10(np.ptp(whole[:999].astype(float)) / 2))


@pytest.mark.parametrize("at", [0, 1500, SAMPLES - 1])
def test_samples_that_are_no_number_are_found_in_any_block(at, tmp_path, monkeypatch):
    monkeypatch.setattr(audio_survey, "BLOCK", 1000)
    path = tmp_path / "broken.wav"
    soundfile.write(path, with_value(np.nan, at), RATE, subtype="FLOAT")
    assert not survey_recording(path, {"all": (0.0, None)}).extents["all"].finite
    soundfile.write(path, with_value(0.2, at), RATE, subtype="FLOAT")
    assert survey_recording(path, {"all": (0.0, None)}).extents["all"].finite


@pytest.mark.parametrize(
    ("name", "other", "hours"),
    [
        ("speechocean762/train", "speechocean762/eval", 1.61),
        ("librispeech_mini/eval", "librispeech_mini/train", 0.21),
    ],
)
def test_real_speech_is_sound(name, other, hours):
    if not DATA.is_dir():
        pytest.skip("the real recordings are not beside the repository")
    validation = validate(DATA / name, root=DATA, against=[DATA / other], sample_rate=RATE, jobs=2)
    assert validation.faults == []
    assert validation.hours == pytest.approx(hours, abs=0.005)
    assert validation.utterances == len(KaldiDir.read(DATA / name, DATA).utt2spk)
