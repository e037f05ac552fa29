from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import pytest
import soundfile
import yaml
from command_material import RATE, write_data

from svtoolkit.audio.shards.reader import read_member
from svtoolkit.cli import main
from svtoolkit.data.shard_index import parse_shard_index
from svtoolkit.data.shard_verification import verify_shards
from svtoolkit.data.tables import read_table
from svtoolkit.data.utt2spk import read_utt2spk


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """3 speakers of 2 utterances, with trials."""
    return write_data(tmp_path / "data", range(3), 2, trials=True)


def words(data: Path, out: Path, *more: str) -> list[str]:
    return ["shard", "--data", str(data), "--out", str(out), "--per-shard", "4", *more]


def formats(out: Path) -> set[tuple[str, int]]:
    """Format and rate of the audio that the index leads to."""
    locations = parse_shard_index(read_table(out / "shards.scp", []), [], out)
    infos = [soundfile.info(io.BytesIO(read_member(location))) for location in locations.values()]
    assert len(infos) == len(locations)
    return {(info.format, info.samplerate) for info in infos}


@pytest.mark.usefixtures("told_at_once")
def test_shards_of_a_data_directory(tmp_path, data, capsys):
    out = tmp_path / "out"
    typed = words(data, out, "--format", "flac", "--jobs", "2")
    assert main(typed) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{out}: 6 utterances, 0.00 h in 2 shards (0 reused), 0 left out\n"
    assert "6/6" in captured.err
    assert re.search(r"shard: 6/6 utt \(100 %\), .* utt/s", captured.err)
    assert sorted(path.name for path in out.glob("*.tar")) == ["shard-000000.tar", "shard-000001.tar"]
    assert formats(out) == {("FLAC", RATE)}
    assert verify_shards(out) == []
    assert read_utt2spk(out / "utt2spk") == read_utt2spk(data / "utt2spk")
    assert (out / "trials").read_bytes() == (data / "trials").read_bytes()
    record = yaml.safe_load((out / "made_by.yaml").read_text())
    assert (record["command"], record["source"]) == (f"svt {' '.join(typed)}", str(data))
    assert record["per_shard"] == 4
    assert main(typed) == 0
    assert capsys.readouterr().out == (
        f"{out}: all shards are there\n{out}: 6 utterances, 0.00 h in 2 shards (2 reused), 0 left out\n"
    )


def test_options_reach_the_writer(tmp_path, data, capsys):
    assert main(words(data, tmp_path / "one", "format=original", "order=sorted", "sample_rate=8000")) == 0
    assert formats(tmp_path / "one") == {("WAV", RATE)}
    first = (tmp_path / "one" / "shards.scp").read_text().splitlines()[0]
    assert first.startswith("s00-0 shard-000000.tar:512:")
    assert main(words(data, tmp_path / "two", "resample=true", "sample_rate=16000", "channel=0")) == 0
    assert formats(tmp_path / "two") == {("FLAC", 16000)}
    assert main(words(data, tmp_path / "three", "sample_rate=16000")) == 1
    assert "cannot be used, with max_bad=0.001 1 may be: " in capsys.readouterr().err
    assert main(words(data, tmp_path / "four", "seed=1")) == 0
    assert main(words(data, tmp_path / "five")) == 0
    assert len({(tmp_path / name / "shard-000000.tar").read_bytes() for name in ("four", "five")}) == 2


def test_relative_paths(tmp_path, data, capsys):
    moved = tmp_path / "elsewhere"
    shutil.move(data / "wav", moved)
    (data / "wav.scp").write_text((data / "wav.scp").read_text().replace(f"{data}/wav/", ""))
    assert main(words(data, tmp_path / "out")) == 1
    assert "there is no such file" in capsys.readouterr().err
    assert main(words(data, tmp_path / "other", "--root", str(moved))) == 0
    assert formats(tmp_path / "other") == {("FLAC", RATE)}


@pytest.mark.usefixtures("told_at_once")
def test_what_is_left_out_is_told(tmp_path, data, capsys):
    (data / "wav" / "s01" / "s01-0.wav").write_bytes(b"no audio")
    out = tmp_path / "out"
    assert main(words(data, out, "max_bad=0")) == 1
    captured = capsys.readouterr().err
    assert (
        f"error: 1 of 6 files cannot be used, with max_bad=0 0 may be: {data}/wav/s01/s01-0.wav: cannot be" in captured
    )
    assert main(words(data, out)) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == f"{data}/trials: 3 of 6 trials are of utterances in the shards"
    assert lines[1].startswith("1 utterances are left out for bad audio; the first: ")
    assert lines[2] == f"{out}: 5 utterances, 0.00 h in 2 shards (0 reused), 1 left out"
    assert lines[3] == f"{out}/bad_files.tsv: what was left out, and why"
    assert "6/6" in captured.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["per_shard=0"], "per_shard is 0, expected 1 or more"),
        (["--format", "mp3"], "format is 'mp3', expected one of flac, original"),
        (["--format", "original", "--channel", "0"], "format=original keeps files as they are"),
    ],
)
def test_options_that_cannot_be(tmp_path, data, capsys, options, message):
    assert main(words(data, tmp_path / "out", *options)) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {message}")


def test_a_folder_that_cannot_be(tmp_path, data, capsys):
    assert main(words(data, data)) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: {data}/wav.scp: the folder holds data already; choose another one for the shards"
    )
    assert main(["shard", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/none: there is no such data directory")
    assert main(["shard"]) == 1
    assert "required and not given: data, out" in capsys.readouterr().err
