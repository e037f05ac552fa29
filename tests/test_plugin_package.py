"""The package of docs/extending.md, beside svtoolkit: its network does what ours do, in processes of their own; without
the package the message names it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_material import said
from plugin_package import install_example
from tiny_runs import command_words, read_records, tiny_config

RUN = """
import json, os, signal, sys, traceback
import torch._dynamo
from torch.optim.optimizer import register_optimizer_step_post_hook
from svtoolkit.cli import main
from svtoolkit.commands import average, embed, models, train, verify
from svtoolkit.training import experiment

def run(words, stop_after):
    finished = []

    def count(*_):
        finished.append(None)
        if len(finished) == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)

    register_optimizer_step_post_hook(count)
    print("status", main(words), "after", len(finished))

for words, stop_after in json.loads(sys.argv[1]):
    if (process := os.fork()) == 0:
        try:
            run(words, stop_after)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(process, 0)
"""
"""Each command in a process of its own, forked from one that has imported what it needs and done nothing."""


@dataclass(frozen=True)
class Runs:
    """What the commands left and said.

    Attributes:
        exp_dir: of a run that was stopped after 3 steps and resumed in another process.
        output: standard output of all of them.
    """

    exp_dir: Path
    output: str


@pytest.fixture(scope="module")
def runs(speech: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """`svt train` twice, then `average`, `embed`, `verify` and `models` where nothing was trained."""
    package = install_example(tmp_path_factory.mktemp("site"))
    exp_dir = tmp_path_factory.mktemp("plugin") / "exp"
    words = command_words(tiny_config(speech, exp_dir, trainer__epochs=1, data__speeds=[1.0]))
    words = [word for word in words if not word.startswith("model")]
    train = ["train", *words, "model=mean_network", "model.embedding_dim=8", "model.width=12"]
    embed = ["embed", f"model={exp_dir}/model", f"data={speech}", f"out={exp_dir}/embeddings", "device=cpu"]
    average, models = ["average", str(exp_dir), "num=1"], ["models", "mean*"]
    commands = [(train, 3), *((words, 0) for words in (train, average, embed, verification(exp_dir, speech), models))]
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, json.dumps(commands)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Runs(exp_dir, done.stdout)


def verification(exp_dir: Path, speech: Path) -> list[str]:
    return [
        "verify",
        f"{exp_dir}/model",
        *map(str, sorted((speech.parent / "audio").iterdir())[:2]),
        "device=cpu",
        "min_voice=0",
    ]


def test_it_resumes_where_it_stopped(runs):
    stopped, resumed, *_ = re.findall(r"status (\d+) after (\d+)", runs.output)
    assert stopped == ("143", "3")
    assert resumed[0] == "0"
    steps = [record["step"] for record in read_records(runs.exp_dir) if record["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) == 3 + int(resumed[1])
    assert len(steps) > 3


def test_its_released_model_embeds_and_verifies(runs):
    statuses = [int(status) for status in re.findall(r"status (\d+) after", runs.output)]
    assert statuses[2:] == [0, 0, 3, 0]  # 3: a score, and no threshold to decide by
    assert "width: 12" in (runs.exp_dir / "model" / "model.yaml").read_text()
    assert "48 embeddings" in runs.output
    assert "score " in runs.output


def test_it_is_listed_and_surveyed(runs):
    (row,) = (line.split() for line in runs.output.splitlines() if line.startswith("mean_network "))
    assert row[:4] == ["mean_network", "mean", "of", "frames"]
    assert row[4:6] == ["-", "0.01"]  # it does not say how many layers it has; 80 x 32 + 32 x 256 weights and biases


def test_without_the_package_the_message_names_it(runs, speech, capsys):
    exp_dir = runs.exp_dir
    train = ["train", "model=mean_network", f"data.train={speech}", f"exp_dir={exp_dir.parent}/new"]
    messages = [said(capsys, *words) for words in (verification(exp_dir, speech), ["models", "mean_network"], train)]
    assert messages[0].startswith(f"error: {exp_dir}/model/model.yaml: there is no network 'mean_network'")
    for message in messages:
        assert len(message.splitlines()) == 1
        assert "'mean_network'" in message
        assert "install that package" in message
        assert "entry point mean_network in the group svtoolkit.models" in message
