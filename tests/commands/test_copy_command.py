"""svt copy: what is written composes to the same configuration, and nothing is overwritten."""

from __future__ import annotations

import dataclasses

import pytest

from svtoolkit import composition
from svtoolkit.cli import main
from svtoolkit.composition.groups import GROUPS
from svtoolkit.composition.shipped import shipped_names, shipped_text

REQUIRED_WORDS = ["exp_dir=x", "data.train=y"]
OPTIONS = [
    "model/revnet57",
    "optim/sgd_8bit",
    "loss/softmax",
    "memory/reversible",
    "trainer/default",
    "validation/none",
]


def test_there_are_all_experiments_and_all_options(capsys):
    assert main(["copy"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names == shipped_names()
    assert names[0] == "experiment/mini"
    assert set(names) >= {f"{group}/{option}" for group in GROUPS for option in GROUPS[group]}


@pytest.mark.parametrize("name", ["experiment/mini", "experiment/voxceleb_lm"])
def test_an_experiment_is_the_same_under_another_name(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    assert main(["copy", name, "mine.yaml"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: svt train experiment=mine.yaml"
    mine = composition.compose("train", [*REQUIRED_WORDS, "experiment=mine.yaml"])
    assert mine == composition.compose("train", [*REQUIRED_WORDS, f"experiment={name.partition('/')[2]}"])


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_the_same_as_a_preset(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    group, _, option = name.partition("/")
    assert main(["copy", name, f"{group}/mine.yaml"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: svt train {group}=mine --config-dir {tmp_path}"
    words = [*REQUIRED_WORDS, f"config_dir={tmp_path}"]
    mine = composition.load("train", [*words, f"{group}=mine"])
    ours = composition.load("train", [*words, f"{group}={option}"])
    assert dataclasses.asdict(mine) == dataclasses.asdict(ours)


def test_without_a_file_it_is_printed(capsys):
    assert main(["copy", "optim/sgd"]) == 0
    assert capsys.readouterr().out == shipped_text("optim/sgd")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["experiment/mini", "there.yaml"],
            "there.yaml: is there already; choose another file with out=FILE, or remove",
        ),
        (["experiment/mini", "mine.yml"], "out is mine.yml, expected the name of a file that ends with .yaml"),
        (
            ["optim/sgd", "mine.yaml"],
            "out is mine.yaml: a preset of optim is found in a folder of that name; write out=",
        ),
        (
            ["experiment/mino", "mine.yaml"],
            "there is no 'experiment/mino' to copy; did you mean 'experiment/mini'? all: ",
        ),
    ],
)
def test_mistakes(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.yaml").write_text("seed: 3\n")
    assert main(["copy", *words]) == 1
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["there.yaml"]
    assert (tmp_path / "there.yaml").read_text() == "seed: 3\n"
