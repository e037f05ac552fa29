"""svt recipe: a copy that runs by itself, and nothing of the user's is overwritten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from svtoolkit import __version__
from svtoolkit.cli import main
from svtoolkit.commands import recipe


def test_they_are_listed(capsys):
    assert main(["recipe"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(path.name for path in (ROOT / "recipes").iterdir())
    assert lines[0] == "mini      From speech to an equal error rate on two CPU cores"


def test_a_copy_has_all_that_it_needs_and_says_how_to_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["recipe", "mini"]) == 0
    folder = tmp_path / "svtoolkit-mini"
    assert {path.name for path in folder.iterdir()} == {"README.md", "environment", "inputs.sh", "run.sh", "stages.sh"}
    assert (folder / "environment").read_text() == f"{Path(sys.executable).parent}\n"
    assert capsys.readouterr().out.splitlines()[-1] == "next: bash svtoolkit-mini/run.sh --help"
    path = os.pathsep.join(["/usr/bin", "/bin"])
    shown = subprocess.run(
        ["bash", folder / "run.sh", "--stage", "9", "--stop-stage", "9"],
        env={"PATH": path, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["mini", "small", "voxceleb"])
def test_help_of_a_copy(tmp_path, name):
    assert main(["recipe", name, str(tmp_path / "mine")]) == 0
    shown = subprocess.run(["bash", tmp_path / "mine" / "run.sh", "--help"], capture_output=True, text=True, check=True)
    assert "usage: run.sh [options] [key=value ...]" in shown.stdout
    assert str(tmp_path / "mine" / "exp") in shown.stdout


@pytest.mark.parametrize("name", ["mini", "small", "voxceleb"])
def test_the_page_of_a_copy_leads_nowhere_else(tmp_path, name):
    folder = tmp_path / "mine"
    assert main(["recipe", name, str(folder)]) == 0
    original, page = ((where / "README.md").read_text() for where in (ROOT / "recipes" / name, folder))
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert [link for link in links if not link.startswith("https://") and not (folder / link).is_file()] == []
    assert links == [link for link in re.findall(r"\]\(([^)]*)\)", original) if link.startswith("https://")]
    assert "    bash run.sh " in page
    assert "recipes/" not in page
    assert page.rstrip().endswith(f"are those of svtoolkit {__version__}'s source.")


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_there_stays(tmp_path, capsys, kind):
    out = tmp_path / "mine"
    {"folder": out.mkdir, "file": out.touch, "link": lambda: out.symlink_to(tmp_path / "nowhere")}[kind]()
    assert main(["recipe", "mini", str(out)]) == 1
    assert capsys.readouterr().err == (
        f"error: {out}: is there already; choose another folder with out=DIR, or remove it\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert kind != "folder" or not list(out.iterdir())


def test_an_unknown_one(capsys):
    assert main(["recipe", "voxceleb2"]) == 1
    assert capsys.readouterr().err == "error: there is no recipe 'voxceleb2'; all: mini, small, voxceleb\n"


def test_without_an_svt_beside_python_the_copy_asks_for_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recipe, "_programs", lambda: None)
    assert main(["recipe", "mini", str(tmp_path / "mine")]) == 0
    assert "activate its environment and give run.sh --no-setup" in capsys.readouterr().out
    assert not (tmp_path / "mine" / "environment").exists()
