"""What the command adds to svtoolkit.training, which has tests of its own: exit statuses and the kept command line."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
import yaml
from command_material import TRAIN_WORDS

from svtoolkit import composition
from svtoolkit.cli import main, parse_words
from svtoolkit.commands import train as command


@pytest.fixture
def words(tmp_path, train_data) -> list[str]:
    return ["train", *TRAIN_WORDS, "--exp-dir", f"{tmp_path}/exp", "--data.train", str(train_data)]


def test_a_run_leaves_its_configuration_and_its_command(exp_dir, train_data):
    (line,) = (exp_dir / "logs" / "commands.txt").read_text().splitlines()
    assert line.startswith("svt train model=resnet10 model.base_width=4 ")
    assert line.endswith(f" --exp-dir {exp_dir} --data.train {train_data}")
    saved = yaml.safe_load((exp_dir / "config.yaml").read_text())
    overrides, _ = parse_words("train", [*TRAIN_WORDS, f"exp_dir={exp_dir}", f"data.train={train_data}"])
    assert saved == yaml.safe_load(composition.to_yaml(composition.compose("train", overrides)))


def test_a_finished_run_is_not_trained_again(tmp_path, exp_dir, words, capsys):
    copy = Path(shutil.copytree(exp_dir, tmp_path / "exp"))
    before = {path.name: path.read_bytes() for path in (copy / "checkpoints").iterdir()}
    assert main(words) == 0
    assert main(words) == 0
    assert capsys.readouterr().out.endswith(f"finished: {copy}\n")
    assert {path.name: path.read_bytes() for path in (copy / "checkpoints").iterdir()} == before
    commands = (copy / "logs" / "commands.txt").read_text().splitlines()
    assert len(commands) == 2  # the run's own, and the one typed here
    assert commands[1].endswith(f"--exp-dir {copy} --data.train {words[-1]}")


def test_a_refused_run_leaves_no_command(tmp_path, exp_dir, words, capsys):
    copy = Path(shutil.copytree(exp_dir, tmp_path / "exp"))
    before = (copy / "logs" / "commands.txt").read_bytes()
    assert main([*words, "seed=4"]) == 1
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith(f"error: {copy}/config.yaml: the run there has another configuration: seed was 3 and is 4")
    )
    assert (copy / "logs" / "commands.txt").read_bytes() == before


def test_a_signal_is_the_exit_status_and_the_command_is_kept(tmp_path, words, monkeypatch, capsys):
    monkeypatch.setattr(command, "launch", lambda config: int(signal.SIGTERM))
    assert main(words) == 143
    assert capsys.readouterr().out == "stopped by signal 15, state saved; the same command resumes from here\n"
    assert (tmp_path / "exp" / "logs" / "commands.txt").read_text().startswith("svt train model=resnet10 ")


def test_data_that_is_not_there(words, capsys):
    assert main([*words, "data.train=/nowhere"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: /nowhere")
