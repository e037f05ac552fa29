"""The package of docs/extending.md, beside svtoolkit: its network does what ours do, in processes of their own; without
the package the message names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_package import install_example
from tiny_runs import read_records

TRAIN = """
import os, signal, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
from tiny_runs import command_words, tiny_config
from svtoolkit.cli import main

data, exp_dir, stop_after = sys.argv[1], sys.argv[2], int(sys.argv[3])
finished = []

def count(*_):
    finished.append(None)
    if len(finished) == stop_after:
        os.kill(os.getpid(), signal.SIGTERM)

register_optimizer_step_post_hook(count)
words = command_words(tiny_config(data, exp_dir, trainer__epochs=1, data__speeds=[1.0]))
words = [word for word in words if not word.startswith("model")]
status = main(["train", *words, "model=mean_network", "model.embedding_dim=8", "model.width=12"])
print("status", status, "after", len(finished))
"""
SVT = """
import json, sys
from svtoolkit.cli import main

for words in json.loads(sys.argv[1]):
    print("status", main(words), flush=True)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    return install_example(tmp_path_factory.mktemp("site"))


def python(code: str, *words: object, package: Path | None) -> subprocess.CompletedProcess[str]:
    folders = [str(Path(__file__).parent / "material"), *([] if package is None else [str(package)])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=290)


def succeeds(code: str, *words: object, package: Path) -> str:
    done = python(code, *words, package=package)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def exp_dir(package, speech, tmp_path_factory) -> Path:
    """Of a run that was stopped after 3 steps and resumed in another process."""
    exp_dir = tmp_path_factory.mktemp("plugin") / "exp"
    assert "status 143 after 3" in succeeds(TRAIN, speech, exp_dir, 3, package=package)
    assert "status 0 after" in succeeds(TRAIN, speech, exp_dir, 0, package=package)
    return exp_dir


def verification(exp_dir: Path, speech: Path) -> list[str]:
    return [
        "verify",
        f"{exp_dir}/model",
        *map(str, sorted((speech.parent / "audio").iterdir())[:2]),
        "device=cpu",
        "min_voice=0",
    ]


@pytest.fixture(scope="module")
def output(exp_dir, package, speech) -> str:
    """What `svt average`, `embed`, `verify` and `models` say in a process that did not train."""
    embed = ["embed", f"model={exp_dir}/model", f"data={speech}", f"out={exp_dir}/embeddings", "device=cpu"]
    commands = [["average", str(exp_dir), "num=1"], embed, verification(exp_dir, speech), ["models", "mean*"]]
    return succeeds(SVT, json.dumps(commands), package=package)


def test_it_resumes_where_it_stopped(exp_dir):
    steps = [record["step"] for record in read_records(exp_dir) if record["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) > 3


def test_its_released_model_embeds_and_verifies(exp_dir, output):
    assert output.count("status 0") == 3
    assert output.count("status 3") == 1  # a score, and no threshold to decide by
    assert "width: 12" in (exp_dir / "model" / "model.yaml").read_text()
    assert "48 embeddings" in output
    assert "score " in output


def test_it_is_listed_and_surveyed(output):
    (row,) = (line.split() for line in output.splitlines() if line.startswith("mean_"))
    assert row[:4] == ["mean_network", "mean", "of", "frames"]
    assert row[4:6] == ["-", "0.01"]  # it does not say how many layers it has; 80 x 32 + 32 x 256 weights and biases


def test_without_the_package_the_message_names_it(exp_dir, output, speech):
    train = ["train", "model=mean_network", f"data.train={speech}", f"exp_dir={exp_dir.parent}/new"]
    done = python(SVT, json.dumps([verification(exp_dir, speech), ["models", "mean_network"], train]), package=None)
    assert done.stdout.splitlines() == ["status 1"] * 3
    verifying, *others = done.stderr.splitlines()
    assert verifying.startswith(f"error: {exp_dir}/model/model.yaml: there is no network 'mean_network'")
    assert len(others) == 2
    for message in (verifying, *others):
        assert "'mean_network'" in message
        assert "install that package" in message
        assert "entry point mean_network in the group svtoolkit.models" in message
