"""`svt train --multirun`: every combination is a run, here or by a launcher that makes jobs of them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tiny_runs import assert_same_run, command_words, tiny_config

from svtoolkit.cli import main
from svtoolkit.training.experiment import train


@pytest.fixture
def multirun(warm_svt: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(speech: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        config = tiny_config(speech, folder / "unused", trainer__epochs=1, validation__speakers=0)
        kept = [word for word in command_words(config) if not word.startswith(("seed=", "exp_dir="))]
        command = [warm_svt, "train", "--multirun", *kept, *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=240)

    return run


def test_every_combination_is_a_run(speech, tmp_path, multirun):
    done = multirun(speech, tmp_path, "seed=1,2", "exp_dir=exp/${seed}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished: exp/") == 2
    for seed in (1, 2):
        config = yaml.safe_load((tmp_path / "exp" / str(seed) / "config.yaml").read_text())
        assert config["seed"] == seed
        typed = (tmp_path / "exp" / str(seed) / "logs" / "commands.txt").read_text()
        assert typed.startswith("svt train ")
        assert f"seed={seed}" in typed
    alone = tiny_config(speech, tmp_path / "alone", seed=2, trainer__epochs=1, validation__speakers=0)
    assert train(alone) is None
    assert_same_run(tmp_path / "exp" / "2", tmp_path / "alone")


@pytest.mark.skipif(
    importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is None,
    reason="hydra-submitit-launcher is not installed",
)
def test_a_launcher_makes_a_job_of_a_combination(speech, tmp_path, multirun):
    """submitit's local executor: the pickling and the processes of SLURM without SLURM."""
    launcher = ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=4"]
    done = multirun(speech, tmp_path, "seed=3", "exp_dir=exp/${seed}", *launcher)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "exp" / "3" / "checkpoints").glob("state-*.pt"))
    assert list((tmp_path / "multirun" / ".submitit").iterdir())


def test_a_run_that_fails_is_said(tmp_path, multirun):
    url = "data.root=https://me:secret@host/shards"
    done = multirun(tmp_path / "nothing", tmp_path, "seed=1,2", "exp_dir=exp/${seed}", url)
    assert done.returncode == 1
    assert r"https\://***@host" in done.stdout  # the overrides of the jobs
    assert "secret" not in done.stdout + done.stderr
    assert "secret" not in (tmp_path / "multirun" / "multirun.yaml").read_text()
    assert "error: " in done.stderr
    assert "there is no such data directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_mistakes_are_found_before_any_job(capsys):
    assert main(["train", "--multirun", "seed=1,2", "modle=resnet18"]) == 1
    assert "there is no key 'modle'; did you mean 'model'?" in capsys.readouterr().err
    assert main(["embed", "--multirun", "model=a,b"]) == 1
    assert (
        "svt embed: --multirun is for `svt train`; run `svt embed` without it, once for each" in capsys.readouterr().err
    )


def test_a_launcher_that_is_not_there(tmp_path, multirun):
    done = multirun(tmp_path, tmp_path, "seed=1,2", "exp_dir=e", "hydra/launcher=nobody")
    assert done.returncode == 1
    assert "Could not find 'hydra/launcher/nobody'" in done.stderr
    assert "Traceback" not in done.stderr
