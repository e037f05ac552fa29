"""recipes/small/run.sh from a folder of recordings to a released network whose threshold is that of the folds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command_material import RATE, write_audio
from paths import ROOT

RUN = ROOT / "recipes" / "small" / "run.sh"
SHORT = [
    "--folds", "2", "--nj", "1",
    "model.base_width=4", f"features.sample_rate={RATE}", "data.crop_frames=50", "data.speeds=[1.0]",
    "data.num_workers=0", "trainer.epochs=1", "trainer.threads=1", "crossval.resamples=20",
    "evaluate.resamples=20", "report.resamples=20",
]  # fmt: skip


def recipe(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SVT_VENV": sys.prefix, "OMP_NUM_THREADS": "1"}
    words = ["bash", str(RUN), *map(str, arguments)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280, check=False)


def test_a_folder_of_recordings_comes_to_a_network_with_a_cross_validated_threshold(tmp_path: Path) -> None:
    speech, exp_dir = tmp_path / "my recordings", tmp_path / "an experiment"
    write_audio(speech, range(6), 4)
    done = recipe("--data", speech, "--exp_dir", exp_dir, *SHORT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    pooled = json.loads((exp_dir / "crossval" / "crossval.json").read_text())["pooled"]
    result = json.loads((exp_dir / "crossval" / "scores" / "cosine.json").read_text())
    assert result["eer"] == pooled["cosine"]["eer"]
    held_out = {line.split()[0] for line in (exp_dir / "crossval" / "eval" / "utt2spk").read_text().splitlines()}
    assert len(held_out) == 6 * 4
    stored = yaml.safe_load((exp_dir / "model" / "model.yaml").read_text())["verification"]
    assert stored["threshold"] == pytest.approx(result["eer_threshold"], abs=1e-6)
    assert len((exp_dir / "embeddings" / "cohort.scp").read_text().splitlines()) == 6 * 4
    assert (exp_dir / "plda.safetensors").is_file()
    report = json.loads((exp_dir / "report" / "result.json").read_text())
    assert [found["scores"] for found in report["results"]] == ["cosine", "as-norm", "plda"]

    again = recipe("--data", speech, "--exp-dir", exp_dir, *SHORT)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("nothing has changed, skipped") == 5
    threshold = stored["threshold"]
    for lost in ("data", "crossval/scores", "model"):
        shutil.rmtree(exp_dir / lost)
    mended = recipe("--data", speech, "--exp-dir", exp_dir, *SHORT)
    assert mended.returncode == 0, mended.stderr
    assert "stage 1: runs again, what it made is gone: data/all/wav.scp" in mended.stdout
    assert yaml.safe_load((exp_dir / "model" / "model.yaml").read_text())["verification"]["threshold"] == threshold


def test_two_networks_are_released_as_one_with_the_threshold_of_both(tmp_path: Path) -> None:
    speech, exp_dir = tmp_path / "my recordings", tmp_path / "an experiment"
    write_audio(speech, range(6), 4)
    done = recipe("--data", speech, "--exp-dir", exp_dir, "--networks", 2, "seed=7", *SHORT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    content = json.loads((exp_dir / "crossval" / "crossval.json").read_text())
    assert [(one["fold"], one["seed"]) for one in content["folds"]] == [
        (1, 7), (2, 7), (1, 8), (2, 8), (1, None), (2, None),
    ]  # fmt: skip
    described = yaml.safe_load((exp_dir / "model" / "model.yaml").read_text())
    assert [member["seed"] for member in described["training"]["members"]] == [7, 8]
    result = json.loads((exp_dir / "crossval" / "ensemble" / "scores" / "cosine.json").read_text())
    assert described["verification"]["threshold"] == pytest.approx(result["eer_threshold"], abs=1e-6)
    report = json.loads((exp_dir / "report" / "result.json").read_text())
    assert report["results"][0]["eer"] == result["eer"]

    again = recipe("--data", speech, "--exp-dir", exp_dir, "--networks", 2, "seed=7", *SHORT)
    assert again.stdout.count("nothing has changed, skipped") == 5, again.stderr


@pytest.mark.parametrize(
    ("speakers", "folds", "message"),
    [
        (5, 2, "has 5 speakers, and --folds 2 needs 6: recordings of more speakers"),
        (6, 4, "has 6 speakers, and --folds 4 needs 8: give --folds 3 or recordings of more speakers"),
    ],
)
def test_too_few_speakers_are_refused_before_anything_is_trained(
    tmp_path: Path, speakers: int, folds: int, message: str
) -> None:
    write_audio(tmp_path / "speech", range(speakers), 2)
    done = recipe("--data", tmp_path / "speech", "--exp-dir", tmp_path / "exp", *SHORT, "--folds", folds)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "exp" / "crossval").exists()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "there is no such folder"),
        (lambda folder: folder.write_text("x"), "is a file"),
        (lambda folder: folder.mkdir(), "holds no folder"),
        (
            lambda folder: ((folder / "train").mkdir(parents=True), (folder / "train" / "wav.scp").touch()),
            "name them: --data",
        ),
    ],
)
def test_what_is_no_folder_of_speakers_is_refused(make, said: str, tmp_path: Path) -> None:
    make(tmp_path / "given")
    done = recipe("--data", tmp_path / "given", "--exp-dir", tmp_path / "exp", *SHORT)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "exp").exists()
