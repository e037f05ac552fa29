from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import soundfile
import yaml
from command_material import RATE, voice, write_data
from m4a_material import write_m4a

from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir


@pytest.fixture
def source(tmp_path) -> Path:
    """3 speakers of 2 utterances at 8000 Hz, with trials."""
    return write_data(tmp_path / "source", range(3), 2, trials=True)


@pytest.mark.usefixtures("told_at_once")
def test_a_converted_directory(source, tmp_path, capsys):
    words = ["--source", str(source), "--out", str(tmp_path / "out"), "--format", "flac", "--jobs", "2"]
    assert main(["convert", *words, "sample_rate=8000"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path}/out: 3 speakers, 6 utterances, 0.00 h\n"
    assert "6/6" in captured.err
    converted = KaldiDir.read(tmp_path / "out")
    assert converted.wav_scp["s00-0"] == f"{tmp_path}/out/audio/s00/s00-0.flac"
    assert converted.utt2dur == KaldiDir.read(source).utt2dur
    assert (tmp_path / "out" / "trials").read_bytes() == (source / "trials").read_bytes()
    assert main(["validate", str(tmp_path / "out")]) == 0


def test_the_command_is_kept_with_the_data(source, tmp_path):
    assert main(["convert", f"source={source}", f"out={tmp_path}/out", "format=wav"]) == 0
    record = yaml.safe_load((tmp_path / "out" / "made_by.yaml").read_text())
    assert record["command"] == f"svt convert source={source} out={tmp_path}/out format=wav"
    assert (record["source"], record["sample_rate"]) == (str(source), 16000)
    assert soundfile.info(tmp_path / "out" / "audio" / "s00" / "s00-0.wav").samplerate == 16000


def test_piped_commands_run_where_they_are_asked_for(source, tmp_path, capsys):
    """Whole recordings and segments, as the message says that refuses them."""
    plain = source / "wav" / "s00" / "s00-0.wav"
    lines = (source / "wav.scp").read_text().splitlines()
    ran = tmp_path / "ran"
    lines[0] = f"s00-0 touch '{ran}'; cat {plain.relative_to(tmp_path)} |"
    (source / "wav.scp").write_text("".join(f"{line}\n" for line in lines))
    for words in (["convert", f"source={source}", f"out={tmp_path}/out"], ["validate", str(source)]):
        assert main([*words, f"root={tmp_path}"]) == 1
        error = capsys.readouterr().err
        assert "commands of a list are never run unasked, since they may do anything; if you trust them, `svt " in error
        assert not ran.exists()
    command = shlex.split(error.split("`")[1])
    assert main(command[1:]) == 0
    assert ran.exists()
    made = KaldiDir.read(f"{source}_files")
    assert len(made.utt2spk) == 6
    assert soundfile.info(made.wav_scp["s00-0"]).frames == 2 * soundfile.info(plain).frames
    assert main(["validate", f"{source}_files"]) == 0


def test_a_piped_command_that_fails_is_a_bad_file(source, tmp_path, capsys):
    lines = (source / "wav.scp").read_text().splitlines()
    (source / "wav.scp").write_text("".join(f"{line}\n" for line in ["s00-0 false |", *lines[1:]]))
    words = ["convert", f"source={source}", f"out={tmp_path}/out", "run_pipes=true"]
    assert main([*words, "max_bad=0"]) == 1
    assert "'false |': failed with status 1; correct it" in capsys.readouterr().err
    assert main([*words, "max_bad=0.2"]) == 0
    assert len(KaldiDir.read(tmp_path / "out").utt2spk) == 5


def test_segments_of_a_piped_recording(tmp_path):
    recording = tmp_path / "r.wav"
    soundfile.write(recording, voice(1, 1, 1.0), RATE)
    data = tmp_path / "data"
    data.mkdir()
    (data / "wav.scp").write_text(f"r cat '{recording}' |\n")
    (data / "segments").write_text("a-1 r 0.0 0.25\na-2 r 0.5 -1\n")
    (data / "utt2spk").write_text("a-1 a\na-2 a\n")
    words = ["convert", f"source={data}", f"out={tmp_path}/out", "run_pipes=true", f"sample_rate={RATE}", "format=wav"]
    assert main(words) == 0
    whole, _ = soundfile.read(recording, dtype="int16")
    for name, stretch in (("a-1", whole[: RATE // 4]), ("a-2", whole[RATE // 2 :])):
        found, _ = soundfile.read(tmp_path / "out" / "audio" / "a" / f"{name}.wav", dtype="int16")
        assert found.tolist() == stretch.tolist()


def test_voxceleb2_from_m4a_to_a_directory_that_can_be_trained_on(tmp_path, capsys):
    corpus = tmp_path / "vox2" / "dev" / "aac"
    for speaker in ("id00012", "id00015"):
        for number in range(2):
            write_m4a(corpus / speaker / "-21Uxsk56VD" / f"{number:05d}.m4a", voice(1, number, 0.9), RATE)
    words = ["corpus=voxceleb2", "--source", str(tmp_path / "vox2"), f"out={tmp_path}/m4a", "part=dev"]
    assert main(["prepare", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("voxceleb2 dev: 2 speakers, 4 utterances: 5992 of 5994 speakers and 1092005 of 1092009 ")
    assert lines[1] == f"{tmp_path}/m4a: 2 speakers, 4 utterances, durations unknown: svt convert measures them"
    assert not (tmp_path / "m4a" / "utt2dur").exists()
    assert main(["validate", f"{tmp_path}/m4a"]) == 0
    assert main(["convert", "--source", f"{tmp_path}/m4a", "--out", f"{tmp_path}/flac", "sample_rate=8000"]) == 0
    kaldi_dir = KaldiDir.read(tmp_path / "flac")
    assert list(kaldi_dir.utt2dur) == [
        f"{speaker}--21Uxsk56VD-0000{number}" for speaker in ("id00012", "id00015") for number in range(2)
    ]
    assert set(kaldi_dir.utt2dur.values()) == {0.9}
    assert main(["validate", f"{tmp_path}/flac"]) == 0


def test_more_bad_files_than_may_be(source, tmp_path, capsys):
    for number in range(2):
        (source / "wav" / "s01" / f"s01-{number}.wav").write_bytes(b"no audio")
    words = ["convert", f"source={source}", f"out={tmp_path}/out"]
    assert main(words) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: 2 of 6 files cannot be used, with max_bad=0.001 1 may be: ")
    assert f"{tmp_path}/out/bad_files.tsv lists them" in error
    assert main([*words, "max_bad=0.5"]) == 0
    assert "2 of 6 utterances are bad and left out" in capsys.readouterr().out


def test_mistakes(source, tmp_path, capsys):
    assert main(["convert", f"source={tmp_path}/nowhere", f"out={tmp_path}/out"]) == 1
    assert f"error: {tmp_path}/nowhere: there is no such data directory" in capsys.readouterr().err
    assert main(["convert", f"source={source}", f"out={tmp_path}/out", "format=mp3"]) == 1
    assert "error: format is 'mp3', expected one of flac, wav" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
def test_ctrl_c_leaves_nothing_half_written_and_the_command_goes_on(tmp_path):
    source, out = write_data(tmp_path / "source", range(20), 4), tmp_path / "out"
    words = ["convert", f"source={source}", f"out={out}", "jobs=2", "sample_rate=8000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "svtoolkit.cli", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and not list(out.glob("audio/*/*.flac")):
        time.sleep(0.005)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the conversion was quicker than the signal")
    assert process.returncode == 130
    assert errors.decode().splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors.decode()
    made = list(out.glob("audio/*/*"))
    assert made
    assert all(soundfile.read(file)[0].size for file in made)
    assert main(words) == 0
    assert len(KaldiDir.read(out).wav_scp) == 80
