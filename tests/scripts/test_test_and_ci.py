"""scripts/test.sh and .ci/run: what they hand to pytest and the linters, and the exit code that comes back."""

from __future__ import annotations

import os
import shutil

import pytest
from setup_stand_ins import Machine

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the scripts need bash")

LINTERS = ("ruff", "mypy", "shellcheck", "sphinx-build")


@pytest.fixture
def ready(machine: Machine) -> Machine:
    """Set up, with linters that note their arguments and fail where a test says so."""
    machine.python()
    assert machine.setup("--extras", "demo,dev,docs").returncode == 0
    (machine.root / "recipes" / "mini").mkdir(parents=True)
    (machine.root / "recipes" / "mini" / "run.sh").write_text("echo a recipe\n")
    for linter in LINTERS:
        body = f"echo {linter} \"$*\" >>'{machine.notes}/linted'; [[ ! -e '{machine.notes}/{linter} fails' ]]"
        machine.program(linter, body).rename(machine.venv / "bin" / linter)
    return machine


def pytest_calls(machine: Machine) -> list[str]:
    return (machine.notes / "tests").read_text().splitlines()


def test_test_sh_runs_pytest_with_a_worker_more_than_cores(ready: Machine) -> None:
    ready.environment |= {"HYDRA_FULL_ERROR": "1", "OMP_NUM_THREADS": "1"}
    done = ready.run("scripts/test.sh", "tests/a b.py", "-k", "eer or dcf")
    assert done.returncode == 0, done.stderr
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(cores + 1, 8)
    command = f"-m pytest -n {workers} --dist worksteal tests/a b.py -k eer or dcf"
    assert pytest_calls(ready) == [f"{ready.root} OMP_NUM_THREADS=1 HYDRA_FULL_ERROR= {command}"]
    assert "s in all, exit code 0" in done.stdout


def test_test_sh_sets_up_first(machine: Machine) -> None:
    machine.python()
    assert machine.run("scripts/test.sh").returncode == 0
    assert machine.installs[1].endswith("-e .[demo,dev]")
    assert machine.installs[-1].endswith("-r tests/oracles.txt")


def test_test_sh_ends_with_pytests_exit_code(ready: Machine) -> None:
    ready.behave("tests-fail")
    done = ready.run("scripts/test.sh")
    assert done.returncode == 3
    assert "exit code 3" in done.stdout


def test_test_sh_stops_when_the_set_up_fails(machine: Machine) -> None:
    machine.python()
    machine.behave("fail")
    assert machine.run("scripts/test.sh").returncode == 1
    assert not (machine.notes / "tests").exists()


def test_ci_runs_every_check(ready: Machine) -> None:
    done = ready.run(".ci/run")
    assert done.returncode == 0, done.stdout + done.stderr
    ruff, ruff_format, mypy, shellcheck, site = (ready.notes / "linted").read_text().splitlines()
    assert (ruff, ruff_format, mypy.strip()) == ("ruff check .", "ruff format --check .", "mypy")
    assert site.startswith("sphinx-build ")
    assert " -W " in site
    assert shellcheck.startswith("shellcheck ")
    assert ".ci/run recipes/mini/run.sh scripts/" in shellcheck
    assert len(pytest_calls(ready)) == 1
    assert "all checks passed" in done.stdout


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ("ruff", "ruff format"),
        ("mypy", "mypy"),
        ("shellcheck", "shellcheck"),
        ("sphinx-build", "site"),
        ("pytest", "pytest"),
    ],
)
def test_ci_fails_with_any_check_and_runs_the_others(ready: Machine, broken: str, named: str) -> None:
    if broken == "pytest":
        ready.behave("tests-fail")
    else:
        (ready.notes / f"{broken} fails").touch()
    done = ready.run(".ci/run")
    assert done.returncode == 1
    assert f"\nFAILED: {named}\n" in done.stdout
    assert len((ready.notes / "linted").read_text().splitlines()) == 5
    assert len(pytest_calls(ready)) == 1


def test_ci_finds_a_shell_script_that_does_not_parse(ready: Machine) -> None:
    (ready.root / "recipes" / "mini" / "run.sh").write_text("if true; then\n")
    done = ready.run(".ci/run")
    assert done.returncode == 1
    assert "FAILED: bash -n\n" in done.stdout
    assert "recipes/mini/run.sh: line" in done.stderr


def test_ci_does_without_shellcheck(ready: Machine) -> None:
    (ready.venv / "bin" / "shellcheck").unlink()
    done = ready.run(".ci/run")
    assert done.returncode == 0
    assert "--- shellcheck" not in done.stdout
