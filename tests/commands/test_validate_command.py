from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml
from command_material import RATE, voice, write_data

from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir


@pytest.fixture
def data(tmp_path) -> Path:
    """3 speakers of 2 utterances, with trials."""
    return write_data(tmp_path / "data", range(3), 2, trials=True)


def break_one(data: Path) -> None:
    """s01-0 is no audio, and so the trials with it are of no use."""
    (data / "wav" / "s01" / "s01-0.wav").write_bytes(b"no audio")


@pytest.mark.usefixtures("told_at_once")
def test_a_good_directory(data, capsys):
    assert main(["validate", str(data)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{data}: 3 speakers, 6 utterances, 0.00 h, 6 files at {RATE} Hz\nno fault found\n"
    assert "6/6" in captured.err
    assert "error" not in captured.err


def test_faults_are_listed_with_file_and_line(data, capsys):
    break_one(data)
    assert main(["validate", str(data)]) == 1
    captured = capsys.readouterr()
    assert captured.out == f"{data}: 3 speakers, 6 utterances, 0.00 h, 5 files at {RATE} Hz\n"
    lines = captured.err.splitlines()
    assert any(line.startswith(f"{data}/wav.scp:3: 's01-0': ") for line in lines)
    assert lines[-1] == f"error: 1 faults; `svt validate {data} --fix NEW_DIR` writes a repaired copy"


def test_tables_alone(data, capsys):
    break_one(data)
    assert main(["validate", str(data), "check_audio=false"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{data}: 3 speakers, 6 utterances, 0.00 h\nno fault found\n"
    assert captured.err == ""


def test_speakers_of_another_directory(tmp_path, data, capsys):
    other = write_data(tmp_path / "other", range(2, 4), 2)
    assert main(["validate", str(data), "--against", str(other)]) == 1
    assert f"speaker 's02' (2 utterances) is also in {other}" in capsys.readouterr().err
    assert main(["validate", str(data), "--against", f"['{tmp_path}/nowhere']"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {tmp_path}/nowhere: there is no utt2spk")


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_rate_that_is_asked_for(data, capsys, jobs):
    assert main(["validate", str(data), "sample_rate=16000", f"jobs={jobs}"]) == 1
    assert "expected 16000 Hz" in capsys.readouterr().err


@pytest.mark.usefixtures("told_at_once")
def test_a_repaired_copy(tmp_path, data, capsys):
    break_one(data)
    (data / "notes.md").write_text("of my own")
    fixed = tmp_path / "fixed"
    assert main(["validate", str(data), "--fix", str(fixed)]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("dropped s01-0: wav.scp:3: ")
    assert "rewritten: utt2spk" in lines
    assert "rewritten: trials" in lines
    assert "left out: notes.md: not a table of utterances or speakers" in lines
    assert lines[-1] == f"{fixed}: written, 1 utterances dropped; {data} is untouched"
    assert "6/6" in captured.err
    assert sorted(KaldiDir.read(fixed).utt2spk) == ["s00-0", "s00-1", "s01-1", "s02-0", "s02-1"]
    assert "s01-0" not in (fixed / "trials").read_text()
    assert len(KaldiDir.read(data).utt2spk) == 6
    record = yaml.safe_load((fixed / "made_by.yaml").read_text())
    assert (record["command"], record["source"]) == (f"svt validate {data} --fix {fixed}", str(data))
    assert main(["validate", str(fixed)]) == 0


def test_a_copy_whose_audio_is_not_opened_keeps_what_only_audio_would_show(tmp_path, data, capsys):
    break_one(data)
    (data / "utt2spk").write_text("".join(reversed((data / "utt2spk").read_text().splitlines(keepends=True))))
    assert main(["validate", str(data), "--fix", str(tmp_path / "fixed"), "check_audio=false"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1].endswith(f"written, 0 utterances dropped; {data} is untouched")
    assert captured.err == ""
    assert len(KaldiDir.read(tmp_path / "fixed").utt2spk) == 6


def test_options_reach_the_repair(tmp_path, data, capsys):
    mono = voice(0, 0, 0.9)
    soundfile.write(data / "wav" / "s00" / "s00-0.wav", np.stack([mono, mono], axis=1), RATE)
    (data / "utt2dur").unlink()
    assert main(["validate", str(data), "--fix", str(tmp_path / "one")]) == 0
    assert capsys.readouterr().out.startswith("dropped s00-0: wav.scp:1: 's00-0': 2 channels, expected one")
    assert main(["validate", str(data), "--fix", str(tmp_path / "two"), "channel=0"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{tmp_path}/two: written, 0 utterances dropped")
    assert main(["validate", str(data), "--fix", str(tmp_path / "three"), "sample_rate=16000"]) == 1
    assert "no utterance would remain" in capsys.readouterr().err
    other = write_data(tmp_path / "other", range(2, 4), 2)
    assert main(["validate", str(data), "--fix", str(tmp_path / "four"), "--against", str(other)]) == 0
    assert sorted(set(KaldiDir.read(tmp_path / "four").utt2spk.values())) == ["s00", "s01"]


def test_a_copy_onto_something_else_is_refused(tmp_path, data, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "wav.scp").write_text("precious")
    assert main(["validate", str(data), "--fix", str(tmp_path / "full")]) == 1
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith(f"error: {tmp_path}/full: expected an empty or a new folder")
    )
    assert (tmp_path / "full" / "wav.scp").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["jobs=0"], "jobs is 0, expected 1 or more"),
        (["sample_rate=-1"], "sample_rate is -1, expected a rate in Hz such as 16000"),
        (["check_audio=false", "channel=0"], "sample_rate and channel are checked in the audio"),
    ],
)
def test_options_that_cannot_be(data, capsys, words, message):
    assert main(["validate", str(data), *words]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {message}")


def test_no_directory(tmp_path, capsys):
    assert main(["validate", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {tmp_path}/none")
    assert main(["validate"]) == 1
    assert capsys.readouterr().err == "error: svt validate: required and not given: data; add data=...\n"


def test_bad_audio_is_taken_out_and_listed_up_to_a_share(tmp_path, capsys):
    data = write_data(tmp_path / "data", range(3), 2)
    break_one(data)
    soundfile.write(data / "wav" / "s02" / "s02-1.wav", np.zeros(RATE), RATE)
    assert main(["validate", str(data), "max_bad=0.1"]) == 1
    assert "error: 2 of 6 files cannot be used, with max_bad=0.1 1 may be: " in capsys.readouterr().err
    assert len(KaldiDir.read(data).utt2spk) == 6
    assert main(["validate", str(data), "max_bad=0.4"]) == 0
    output = capsys.readouterr().out
    assert "left out: s01-0: wav.scp:3: 's01-0': " in output
    assert f"{data}/bad_files.tsv: 2 utterances were taken out of the tables and listed there\n" in output
    assert "2 speakers" not in output
    assert f"{data}: 3 speakers, 4 utterances, " in output
    assert sorted(KaldiDir.read(data).utt2spk) == ["s00-0", "s00-1", "s01-1", "s02-0"]
    assert main(["validate", str(data)]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["max_bad=2"], "max_bad is 2.0, expected a share of the utterances from 0 to 1"),
        (
            ["max_bad=0.1", "fix=elsewhere"],
            "max_bad takes bad utterances out of the directory itself, fix writes a copy",
        ),
    ],
)
def test_max_bad_that_cannot_be(data, words, message, capsys):
    assert main(["validate", str(data), *words]) == 1
    assert f"error: {message}" in capsys.readouterr().err
