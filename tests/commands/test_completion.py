"""svt completion: each shell's own function is driven as Tab does; without Python, and from the tables of --help."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from svtoolkit.cli import main
from svtoolkit.commands import recipe
from svtoolkit.composition.catalogue import Catalogue
from svtoolkit.composition.completion import words_of
from svtoolkit.composition.groups import GROUPS
from svtoolkit.composition.keys import described_keys
from svtoolkit.composition.shell_scripts import script_for
from svtoolkit.config import COMMANDS

CASES = [
    ("svt tra", {"train"}),
    ("svt help tra", {"train"}),
    ("svt train optim.l", {"optim.lr="}),
    ("svt train optim", {"optim=", "optim.lr=", "optim.nesterov=", "optim.weight_decay="}),
    ("svt train optim=sgd", {"sgd", "sgd_8bit"}),
    ("svt train seed=1 optim=adamw_", {"adamw_8bit"}),
    ("svt train model=revnet5", {"revnet57"}),
    ("svt train experiment=mi", {"mini", "mini_lm"}),
    ("svt train trainer.deterministic=", {"true", "false"}),
    ("svt train trainer.device=", {"auto", "cpu", "cuda", "mps"}),
    ("svt train --dr", {"--dry-run"}),
    ("svt score --dr", set()),
    ("svt prepare corpus=vox", {"voxceleb1", "voxceleb2"}),
    ("svt prepare --corpus vox", {"voxceleb1", "voxceleb2"}),
    ("svt recipe mi", {"mini"}),
    ("svt copy experiment/mi", {"experiment/mini", "experiment/mini_lm"}),
    ("svt completion z", {"zsh"}),
    ("svt nothing x", set()),
]
"""What stands before the cursor -> what is offered; of long lists a part."""

PARTS = {"svt train optim"}
EMPTY = {"PATH": "/nonexistent"}
"""No program is there to be called."""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(script_for(shell))
    return folder


def compare(found: dict[str, set[str]]) -> None:
    for line, offered in CASES:
        wrong = offered - found[line] if line in PARTS else offered ^ found[line]
        assert not wrong, line


def run(shell: str, script: str, empty: Path, **environment: str) -> dict[str, set[str]]:
    """What a script prints in an empty folder, a line `LINE|WORD` for each word that is offered."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    options = {"bash": ["--norc", "-c"], "zsh": ["-f", "-c"], "fish": ["--no-config", "-c"]}[shell]
    done = subprocess.run(
        [program, *options, script], cwd=empty, env=EMPTY | environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, set[str]] = {line: set() for line, _ in CASES}
    for text in done.stdout.splitlines():
        line, _, word = text.partition("|")
        found[line].add(word.strip())
    return found


@pytest.mark.parametrize("splits", [True, False], ids=["= splits words", "= does not"])
def test_bash(scripts, tmp_path, splits):
    body = [f". '{scripts / 'bash'}'"]
    for line, _ in CASES:
        words = line.replace("=", " = ").split() if splits else line.split()
        if line.endswith(" ") or (splits and line.endswith("=")):
            words = words if line.endswith("=") else [*words, ""]
        quoted = " ".join(f"'{word}'" for word in words)
        body.append(
            f"COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}; _svt; printf '{line}|%s\\n' \"${{COMPREPLY[@]}}\""
        )
    found = run("bash", "\n".join(body), tmp_path)
    prefix = {line: "" if splits or "=" not in line else f"{line.split()[-1].partition('=')[0]}=" for line, _ in CASES}
    assert all(word.startswith(prefix[line]) for line, words in found.items() for word in words - {""})
    compare({line: {word.removeprefix(prefix[line]) for word in words - {""}} for line, words in found.items()})


def test_zsh(scripts, tmp_path):
    """compadd and compset are zle's own, and stood in for: they print what they are told to offer."""
    body = [
        "compdef() { }",
        "_files() { }",
        "compset() { word=${word#*=} }",
        "compadd() { local suffix=; if [[ $1 == -S ]]; then suffix=$2; shift 2; fi; shift",
        '  for each in "$@"; do [[ $each == ${word}* ]] && print -r -- "$line|$each$suffix"; done; return 0 }',
        f". '{scripts / 'zsh'}'",
    ]
    body += [f"line='{line}'; words=({' '.join(map(repr, line.split()))}); CURRENT=$#words; _svt" for line, _ in CASES]
    compare(run("zsh", "\n".join(body), tmp_path))


def test_fish(scripts, tmp_path):
    (empty := tmp_path / "empty").mkdir()
    body = [f"source '{scripts / 'fish'}'"]
    body += [f"for word in (complete -C '{line}'); printf '{line}|%s\\n' $word; end" for line, _ in CASES]
    found = {
        line: {word.split()[0] for word in words}
        for line, words in run("fish", "\n".join(body), empty, HOME=str(tmp_path)).items()
    }
    assert found.pop("svt train optim") >= {"optim=sgd", "optim.lr=", "optim.nesterov=true"}  # choices at once
    assert found["svt train optim.l"] == {"optim.lr="}
    offered = {line: {word.partition("=")[2] or word for word in words} for line, words in found.items()}
    compare(offered | {"svt train optim": dict(CASES)["svt train optim"]})


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_tables_are_those_of_help(command):
    words = words_of(command)
    assert set(words.keys) >= {entry.name for entry in described_keys(command)}
    for group, options in Catalogue(command).options.items():
        assert group in words.keys
        assert words.choices[group] == options
    assert set(words.choices) <= set(words.keys)
    assert all(len(options) == len(set(options)) for options in words.choices.values())


def test_what_is_fixed_is_still_so():
    assert set(words_of("recipe").positions) == set(recipe.find_recipes()[0])
    assert set(words_of("train").choices["optim"]) == set(GROUPS["optim"])


def test_it_is_printed_without_composing_anything(capsys, monkeypatch):
    monkeypatch.setattr("svtoolkit.composition.load", lambda *_: pytest.fail("composed"))
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == script_for("bash")
    assert main(["completion", "tcsh"]) == 1
    assert capsys.readouterr().err == "error: there is no completion for 'tcsh'; expected one of bash, zsh, fish\n"
    monkeypatch.undo()
    assert main(["completion", "shell=bash"]) == 0
    assert capsys.readouterr().out == script_for("bash")
