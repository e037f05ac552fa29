"""recipes/mini/run.sh on recordings of one's own: few speakers, no setting but what makes the test short."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_material import RATE, write_audio, write_data
from paths import ROOT

from svtoolkit.cli import main

RUN = ROOT / "recipes" / "mini" / "run.sh"
SHORT = [
    "model.base_width=4", f"features.sample_rate={RATE}", "data.crop_frames=50", "data.speeds=[1.0]",
    "data.num_workers=0", "trainer.epochs=1", "evaluate.resamples=20", "report.resamples=20",
]  # fmt: skip


def recipe(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SVT_VENV": sys.prefix, "OMP_NUM_THREADS": "1"}
    words = ["bash", str(RUN), "--nj", "1", *map(str, arguments)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280, check=False)


def said_command(message: str) -> list[str]:
    (command,) = re.findall(r"`svt (prepare [^`]*)`", message)
    return shlex.split(command)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 speakers of 8 files, in a path with a space."""
    folder = tmp_path_factory.mktemp("own data") / "recordings"
    write_audio(folder, range(8), 8)
    return folder


def test_eight_speakers_come_to_a_report(recordings: Path, tmp_path: Path) -> None:
    """From a folder of recordings by what is said of it; with underscores in the options."""
    exp_dir = tmp_path / "exp"
    refused = recipe("--data", recordings, "--exp_dir", exp_dir)
    assert refused.returncode == 1
    assert ".stages" not in refused.stderr
    assert not exp_dir.exists()
    command = said_command(refused.stderr)
    assert command[-1] == "eval_speakers=2"
    assert main([*command[:-1], "eval_speakers=4"]) == 0
    again = recipe("--data", recordings, "--exp-dir", exp_dir)
    assert f"but {recordings}_data does: give --data" in again.stderr
    done = recipe("--data", f"{recordings}_data", "--exp_dir", exp_dir, "--stop_stage", 6, *SHORT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "no speaker is held out for validation: a fifth of 4 speakers" in done.stdout
    assert "the cohort has 4 speakers: all are taken, top_n is usually 300" in done.stdout
    assert "next: " not in done.stdout
    results = json.loads((exp_dir / "report" / "result.json").read_text())["results"]
    assert [row["scores"] for row in results] == ["cosine", "as-norm"]
    named = recipe("--data", f"{recordings}_data", "--exp-dir", exp_dir, *SHORT, "score.top_n=5")
    assert named.returncode == 1
    assert "top_n is 5, but the cohort has 4 members; expected 2 to 4" in named.stderr


@pytest.mark.parametrize("given", ["{whole}", "{split}/train", "{train_alone}"])
def test_other_folders_than_of_two_data_directories(given: str, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("whole", "split", "train_alone")}
    write_data(places["whole"], range(8), 2)
    for folder in (places["split"] / "train", places["train_alone"] / "train"):
        write_data(folder, range(6), 2)
    write_data(places["split"] / "eval", range(10, 12), 2)
    refused = recipe("--data", given.format(**places), "--exp-dir", tmp_path / "exp")
    assert refused.returncode == 1
    assert "expected a folder with the data directories train/ and eval/" in refused.stderr
    if "split" in given:
        assert refused.stderr.endswith(f": give --data {tmp_path}/split\n")
        return
    assert main(said_command(refused.stderr)) == 0
    made = refused.stderr.split()[-1]
    assert all((Path(made) / part / "wav.scp").is_file() for part in ("train", "eval"))


def test_what_stage_five_needs_is_seen_in_stage_one(tmp_path: Path) -> None:
    write_data(tmp_path / "data" / "train", range(4), 2)
    evaluation = write_data(tmp_path / "data" / "eval", range(10, 13), 1)
    words = ["--data", tmp_path / "data", "--exp-dir", tmp_path / "exp"]
    refused = recipe(*words)
    assert refused.returncode == 1
    assert "no trials can be drawn: 3 speakers with 0 within-speaker pairs cannot make trials" in refused.stderr
    (evaluation / "trials").write_text("s10-0 s11-0 nontarget\n")
    refused = recipe(*words)
    assert refused.returncode == 1
    assert "there is no target trial; an error rate needs both kinds" in refused.stderr
    assert "=== stage 2" not in refused.stdout


def test_a_single_training_speaker_is_no_cohort(tmp_path: Path) -> None:
    write_data(tmp_path / "data" / "train", range(1), 2)
    write_data(tmp_path / "data" / "eval", range(10, 12), 2)
    refused = recipe("--data", tmp_path / "data", "--exp-dir", tmp_path / "exp")
    assert refused.returncode == 1
    assert "has one speaker, and stage 5 needs two or more as a cohort" in refused.stderr
