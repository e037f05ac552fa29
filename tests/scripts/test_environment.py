"""Which environment a recipe takes: none of the user's is changed, whatever is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from paths import ROOT

STAGES = ROOT / "scripts" / "stages.sh"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="recipes need bash")


class Clone:
    """A tree with a recipe that says which svt it calls, and a set-up that notes how it is called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.recipe = folder, folder / "tree", folder / "tree" / "recipes" / "tiny"
        (self.root / "scripts").mkdir(parents=True)
        self.recipe.mkdir(parents=True)
        (self.root / "pyproject.toml").touch()
        self.write(self.root / "scripts" / "setup.sh", 'echo "setup: $*"')
        body = f"recipe='{self.recipe}' root='{self.root}'\n. '{STAGES}'\nparse_options \"$@\"\n"
        body += 'use_environment demo\nsvt\nif [[ -n "${NEEDS:-}" ]]; then require_module "$NEEDS" extra; fi\n'
        self.write(self.recipe / "run.sh", body)
        self.environment(self.root / ".venv")

    @staticmethod
    def write(path: Path, body: str) -> Path:
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
        return path

    def environment(self, place: Path, *, has_svtoolkit: bool = True, has_activate: bool = True) -> Path:
        """Of venv, or without ``has_activate`` of conda; its Python imports svtoolkit alone, or nothing."""
        (place / "bin").mkdir(parents=True)
        imports = '[[ "$2" == *svtoolkit* ]]' if has_svtoolkit else "false"
        self.write(place / "bin" / "python", f'if [[ "$1" == -c ]]; then {imports}; else echo "python: $*"; fi')
        if has_svtoolkit:
            self.write(place / "bin" / "svt", f"echo 'svt of {place}'")
        if has_activate:
            (place / "bin" / "activate").write_text(f"PATH='{place}/bin':$PATH\n")
        return place

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'path' / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
        return subprocess.run(
            ["bash", str(self.recipe / "run.sh"), *words],
            env={"PATH": path, "HOME": str(self.folder), **variables}, capture_output=True, text=True, check=False,
        )  # fmt: skip


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_a_clone_sets_up_its_own(clone: Clone) -> None:
    done = clone.run()
    assert done.stdout.splitlines() == ["setup: --extras demo", f"svt of {clone.root}/.venv"], done.stderr


@pytest.mark.parametrize("has_activate", [True, False], ids=["venv", "conda"])
def test_one_that_is_named_and_has_svtoolkit_is_taken_as_it_is(clone: Clone, has_activate: bool) -> None:
    place = clone.environment(clone.folder / "my env", has_activate=has_activate)
    done = clone.run(SVT_VENV=str(place))
    assert done.stdout.splitlines() == [f"svt of {place}"], done.stderr


def test_one_that_is_named_and_lacks_it_is_left_alone(clone: Clone) -> None:
    place = clone.environment(clone.folder / "conda", has_svtoolkit=False)
    done = clone.run(SVT_VENV=str(place))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"SVT_VENV={place} has no svtoolkit" in done.stderr
    assert f"{place}/bin/python -m pip install {clone.root}\\[demo\\]" in done.stderr


def test_one_that_the_set_up_has_made_is_set_up_further(clone: Clone) -> None:
    place = clone.environment(clone.folder / "ours")
    (place / ".svt-stamp").touch()
    assert clone.run(SVT_VENV=str(place)).stdout.splitlines() == ["setup: --extras demo", f"svt of {place}"]


def test_no_setup_takes_the_svt_on_the_path(clone: Clone) -> None:
    done = clone.run("--no-setup")
    assert (done.returncode, done.stdout) == (1, "")
    assert "--no-setup: there is no svt on PATH" in done.stderr
    place = clone.environment(clone.folder / "path")
    done = clone.run("--no-setup", SVT_VENV=str(clone.folder / "nowhere"))
    assert done.stdout.splitlines() == [f"svt: {place}/bin/svt (--no-setup)", f"svt of {place}"]


def test_what_a_stage_needs_besides_is_installed_where_that_is_allowed(clone: Clone) -> None:
    assert clone.run(NEEDS="av").stdout.splitlines()[-1] == "setup: --extras extra"
    place = clone.environment(clone.folder / "conda")
    assert clone.run(NEEDS="svtoolkit", SVT_VENV=str(place)).returncode == 0
    done = clone.run(NEEDS="av", SVT_VENV=str(place))
    assert (done.returncode, done.stdout) == (1, f"svt of {place}\n")
    assert f"this stage needs the Python package av; install it: {place}/bin/python -m pip install av" in done.stderr


def test_a_copy_takes_the_environment_of_the_svt_that_made_it(clone: Clone) -> None:
    place = clone.environment(clone.folder / "wheel")
    (clone.recipe / "environment").write_text(f"{place}/bin\n")
    shutil.rmtree(clone.root / "scripts")
    assert clone.run().stdout == f"svt of {place}\n"
    other = clone.environment(clone.folder / "other")
    assert clone.run(SVT_VENV=str(other)).stdout == f"svt of {other}\n"
    shutil.rmtree(place)
    assert f"{place}/bin holds no svt any more: name another environment with SVT_VENV=DIR" in clone.run().stderr


def test_help_says_the_rule(clone: Clone) -> None:
    shown = clone.run("--help").stdout
    assert "--no-setup       take the svt on PATH, and install nothing (no)" in shown
    assert "SVT_VENV=DIR the environment there, of conda or your own, if it has" in shown
