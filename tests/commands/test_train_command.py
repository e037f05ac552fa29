"""What the command adds to svtoolkit.training, which has tests of its own: exit statuses and the kept command line."""

from __future__ import annotations

import shlex
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from command_material import TRAIN_WORDS

from svtoolkit import composition
from svtoolkit.cli import main, parse_words
from svtoolkit.commands import train as command
from svtoolkit.errors import UserError
from svtoolkit.runs.exp_dir import alone_in, nothing_left_of_a_failed_start


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
    assert capsys.readouterr().out.endswith(f"finished: {copy}\nnext: svt average {copy}\n")
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


@pytest.mark.parametrize(
    "mistake",
    ["data.train=/nowhere", "features.sample_rate=16000", "trainer.batch_size=1000", "validation.speakers=6"],
)
def test_a_failed_start_leaves_no_folder_behind(mistake, words, tmp_path, capsys):
    """Of a second rate, the first crop tells."""
    words[words.index("--exp-dir") + 1] = f"{tmp_path}/new/exp"
    assert main([*words, mistake]) == 1
    assert list(tmp_path.iterdir()) == []
    capsys.readouterr()
    (tmp_path / "new" / "exp").mkdir(parents=True)
    assert main([*words, mistake]) == 1
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["new", "new/exp"]


def test_a_failed_start_takes_nothing_of_others_away(words, tmp_path, exp_dir):
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "notes.txt").write_text("mine")
    assert main([*words, "data.train=/nowhere"]) == 1
    assert (tmp_path / "exp" / "notes.txt").read_text() == "mine"
    copy = Path(shutil.copytree(exp_dir, tmp_path / "finished"))
    before = sorted(path.relative_to(copy) for path in copy.rglob("*"))
    assert main([*words, f"exp_dir={copy}", "data.train=/nowhere"]) == 1
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == before


def test_a_failed_start_does_not_take_away_the_folder_that_another_run_has_taken(tmp_path):
    exp_dir = tmp_path / "new" / "exp"
    with ExitStack() as other:
        start = nothing_left_of_a_failed_start(exp_dir)
        start.__enter__()
        other.enter_context(alone_in(exp_dir / "logs"))
        assert not start.__exit__(UserError, UserError("busy"), None)
        assert (exp_dir / "logs" / "train.log").exists()


def test_a_finished_run_says_what_comes_next(tmp_path, exp_dir, words, eval_data, capsys):
    copy = Path(shutil.copytree(exp_dir, tmp_path / "exp"))
    assert main(words) == 0
    for name in ("average", "embed", "score", "evaluate"):
        said = capsys.readouterr().out.splitlines()[-1]
        assert said.startswith(f"next: svt {name} "), said
        following = shlex.split(said.removeprefix("next: svt "))
        assert main([word.replace("EVAL_DIR", str(eval_data)) for word in following]) == 0
    assert (copy / "embeddings" / "scores" / "trials.json").is_file()
