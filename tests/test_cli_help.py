"""The help of `svt`: complete, true and quick to import."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields

import pytest
from paths import ROOT

import svtoolkit
from svtoolkit import composition
from svtoolkit.cli import main, parse_words
from svtoolkit.composition.keys import key_types
from svtoolkit.config import (
    COMMANDS,
    AngularPrototypicalConfig,
    ReDimNet2SizesConfig,
    ReDimNetSizesConfig,
    TwoStageConfig,
)

SLOW_IMPORTS = ("torch", "hydra", "omegaconf", "numpy", "yaml", "tqdm")


def imported_by(*words: str) -> list[str]:
    """Which of the slow packages a command line imports, in a process of its own."""
    code = (
        "import json, sys; from svtoolkit.cli import main; status = main(sys.argv[1:]);"
        f"print(json.dumps([name for name in {SLOW_IMPORTS!r} if name in sys.modules]), status, file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )  # fmt: skip
    return json.loads(run.stderr.splitlines()[-1].rpartition(" ")[0])


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["verify", "-h"], ["--version"], ["trian"]])
def test_help_and_mistakes_import_nothing_slow(words):
    assert imported_by(*words) == []


def test_the_check_of_imports_can_fail():
    assert "omegaconf" in imported_by("verify", "--cfg", "job")


def test_an_unknown_key_is_refused_without_torch():
    assert "torch" not in imported_by("train", "optim.lrr=0.1")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_the_overview_lists_every_command(words, capsys):
    assert main(words) == 0
    out = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.summary)}$", out, re.MULTILINE)
    assert "usage: svt <command> [key=value ...]" in out


def test_no_command_prints_the_overview_and_fails(capsys):
    assert main([]) == 1
    assert "usage: svt <command>" in capsys.readouterr().out


def test_every_command_has_a_module():
    modules = {path.stem for path in (ROOT / "svtoolkit" / "commands").glob("*.py")} - {"__init__", "multirun"}
    assert modules == {name.replace("-", "_") for name in COMMANDS}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_a_command_explains_every_key(name, capsys):
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert main(["help", name]) == 0
    assert capsys.readouterr().out == out
    assert f"usage: svt {name}" in out
    listed = re.findall(r"^  ([\w.]+) (?:= \S|\(required\))", out.partition("groups (choose")[0], re.MULTILINE)
    assert len(listed) == len(set(listed))
    of_other_options = {f"optim.{key}" for key in "beta1 beta2 eps block_size min_8bit_size backend".split()}
    of_other_options |= {"optim.ns_steps", "optim.adjust_lr_fn", "optim.adamw_lr"}
    of_other_options |= {f"loss.{key}" for key in "centers top_k top_k_margin balance power angular".split()}
    of_other_options |= {"model.deployed", "model.map_channels", "model.dropout", "model.remainder_bits"}
    of_other_options |= {"model.insides", "model.slope", "model.norm_floor"}
    of_other_options |= {"model.architecture", "model.config", "model.freeze_encoder"}
    of_other_options |= {f"memory.{key}" for key in "segments expansions half intensity folder".split()}
    of_other_options |= {
        f"memory.{key}"
        for key in "gib_per_utterance times inexact offload frames num_bins precision clock seconds".split()
    }
    of_other_options |= {"features.norm_signal", "features.pad_right"}
    sizes = {item.name for each in (ReDimNetSizesConfig, ReDimNet2SizesConfig) for item in fields(each)}
    of_other_options |= {f"model.{key}" for key in sizes - {"name", "embedding_dim", "embedding_layers", "ranks"}}
    two_stages = {item.name for item in fields(TwoStageConfig)} - {"name"}
    of_other_options |= {f"compress.{key}" for key in two_stages}
    compared = {item.name for item in fields(AngularPrototypicalConfig)} - {"name"}
    of_other_options |= {f"pairwise.{key}" for key in compared}
    assert set(listed) == set(key_types(name)) - of_other_options
    assert all(len(line) <= 120 for line in out.splitlines())


def test_help_gives_default_and_comment_of_conf(capsys):
    main(["average", "--help"])
    out = capsys.readouterr().out
    assert re.search(r"^  num = 10 {2,}epochs averaged; where fewer are kept, all of them$", out, re.MULTILINE)
    assert re.search(r"^  exp_dir \(required\) {2,}run of svt train$", out, re.MULTILINE)
    assert "usage: svt average EXP_DIR [key=value ...]" in out
    assert "groups" not in out


def test_help_of_train_lists_options_of_groups_and_the_default_one(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    main(["train", "--help"])
    out = capsys.readouterr().out
    assert re.search(r"^  optim = sgd {2,}adamw, adamw_8bit, muon, muon_8bit, sgd, sgd_8bit$", out, re.MULTILINE)
    experiments = "mini, mini_lm, small, voxceleb, voxceleb_adamw, voxceleb_lm"
    assert re.search(rf"^  experiment = null {{2,}}{experiments}$", out, re.MULTILINE)
    assert re.search(r"^  optim.lr = 0.4 {2,}peak learning rate", out, re.MULTILINE)


def test_long_explanations_are_wrapped_below_themselves(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    main(["train", "--help"])
    lines = capsys.readouterr().out.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("  trainer.micro_batch"))
    column = lines[row].index("most crops in memory")
    assert lines[row + 1].startswith(" " * column + "rest of its share")
    assert all(len(line) <= 90 for line in lines[6 : row + 1])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_example_of_a_command_is_valid(name):
    overrides, _ = parse_words(name, COMMANDS[name].example.split())
    assert composition.load(name, overrides)


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"svtoolkit {svtoolkit.__version__}\n"
    tomllib = pytest.importorskip("tomllib", reason="of Python 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == svtoolkit.__version__
    assert project["scripts"] == {"svt": "svtoolkit.__main__:main"}
