"""scripts/setup.sh: what it asks of pip, when it has nothing to do, which Python it takes, and its arguments."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from setup_stand_ins import ROOT, Machine

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="setup.sh needs bash")


def test_from_nothing_to_an_environment(machine: Machine) -> None:
    machine.python()
    machine.environment["PYTHONPATH"] = "/somebody/elses/packages"
    done = machine.setup("--extras", "demo,dev")
    assert done.returncode == 0, done.stderr
    torch = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert torch is not None
    assert machine.calls[0] == "venv"
    first, second, third = machine.installs
    assert f"-c constraints.txt {torch[0]} setuptools hatchling" in first
    assert second.endswith("-c constraints.txt -e .[demo,dev]")
    assert third.endswith("-c constraints.txt --no-deps -r tests/oracles.txt")
    assert set((machine.notes / "environment").read_text().splitlines()) == {"PYTHONPATH= PIP_USER=0"}
    assert f"installing {torch[0]}" in done.stdout
    assert f"source '{machine.venv}/bin/activate'" in done.stdout


def test_second_call_does_nothing(machine: Machine) -> None:
    machine.python()
    assert machine.setup("--extras=demo,dev").returncode == 0
    before = machine.calls
    for arguments in (["--extras", "dev,demo"], ["--extras", "demo"], []):
        done = machine.setup(*arguments)
        assert done.returncode == 0
        assert "is up to date" in done.stdout
    assert machine.calls == before


def test_extras_add_up(machine: Machine) -> None:
    machine.python()
    for extras in ("demo", "dev"):
        assert machine.setup("--extras", extras).returncode == 0
    assert [call.partition(" -e ")[2] for call in machine.installs] == ["", ".[demo]", "", ".[demo,dev]", ""]
    assert machine.calls.count("venv") == 1


def test_the_oracles_of_the_tests_come_with_the_extra_dev_alone(machine: Machine) -> None:
    machine.python()
    assert machine.setup("--extras", "demo").returncode == 0
    assert not any("oracles" in call for call in machine.installs)
    assert machine.setup("--extras", "dev").returncode == 0
    assert machine.installs[-1].endswith("--no-deps -r tests/oracles.txt")


def test_an_extra_that_cannot_be_installed_does_not_stick(machine: Machine) -> None:
    machine.python()
    assert machine.setup("--extras", "demo").returncode == 0
    machine.behave("fail")
    assert machine.setup("--extras", "torchaudio").returncode == 1
    machine.behave("")
    assert machine.setup().returncode == 0
    assert machine.installs[-1].endswith("-e .[demo]")


@pytest.mark.parametrize(
    ("name", "old", "new", "again"),
    [
        ("constraints.txt", "tqdm==", "tqdm==1", True),
        ("pyproject.toml", '"tqdm>=', '"tqdm>=0', True),
        ("pyproject.toml", "requires-python = ", "requires-python  = ", True),
        ("pyproject.toml", "line-length = ", "line-length  = ", False),
        ("constraints.txt", "# ", "#  ", False),
        ("tests/oracles.txt", "wespeaker-unofficial==", "wespeaker-unofficial==1", True),
    ],
)
def test_changed_requirements_are_installed(machine: Machine, name: str, old: str, new: str, again: bool) -> None:
    machine.python()
    assert machine.setup("--extras", "demo").returncode == 0
    before = len(machine.installs)
    text = (machine.root / name).read_text()
    assert old in text
    (machine.root / name).write_text(text.replace(old, new))
    assert machine.setup().returncode == 0
    assert len(machine.installs) - before == (2 if again else 0)
    if again:
        assert machine.installs[-1].endswith("-e .[demo]")


def test_another_place_relative_to_the_working_directory(machine: Machine) -> None:
    machine.python()
    machine.environment["SVT_VENV"] = "envs/my env"
    for _ in range(2):
        assert machine.setup().returncode == 0
    assert (machine.elsewhere / "envs" / "my env" / "pyvenv.cfg").exists()
    assert not machine.venv.exists()
    assert len(machine.installs) == 2


def test_sourced_it_activates_and_leaves_the_shell_alone(machine: Machine) -> None:
    machine.python()
    assert machine.setup().returncode == 0
    (machine.venv / "bin" / "activate").write_text("activated=yes\n")
    script = '. "$SETUP"; false; echo "status $? ${activated:-no}"; . "$SETUP" --wrong; echo "status $?"'
    shell = subprocess.run(
        ["bash", "-c", script],
        cwd=machine.elsewhere,
        env={"PATH": str(machine.programs), "SETUP": str(machine.root / "scripts" / "setup.sh")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shell.returncode == 0, shell.stderr
    assert "status 1 yes" in shell.stdout
    assert shell.stdout.endswith("status 1\n")


def test_no_usable_python_names_what_was_found(machine: Machine) -> None:
    old = machine.python("python3", "3.8.18")
    broken = machine.program("python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    done = machine.setup()
    assert done.returncode == 1
    assert "no usable Python: svtoolkit needs 3.10 or newer" in done.stderr
    assert f"{old} 3.8.18" in done.stderr
    assert f"{broken} does not run" in done.stderr
    assert "PYTHON=/path/to/python3" in done.stderr
    assert not machine.venv.exists()


def test_no_python_at_all(machine: Machine) -> None:
    done = machine.setup()
    assert done.returncode == 1
    assert "found: none" in done.stderr


def test_a_broken_shim_is_passed_over(machine: Machine) -> None:
    machine.program("python3", "exit 127")
    machine.python("python3.9", "3.9.1")
    machine.python("python3.12", "3.12.1")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert f"with Python 3.12.1 ({machine.programs}/python3.12)" in done.stdout


def test_a_tested_version_goes_before_a_newer_one(machine: Machine) -> None:
    machine.python("python3", "3.15.0")
    machine.python("python3.13", "3.13.0")
    assert "with Python 3.13.0" in machine.setup().stdout


def test_a_newer_version_will_do(machine: Machine) -> None:
    machine.python("python3", "3.15.0")
    assert "with Python 3.15.0" in machine.setup().stdout


def test_the_python_asked_for_is_taken(machine: Machine) -> None:
    machine.python("python3", "3.11.7")
    machine.environment["PYTHON"] = str(machine.python("my-python", "3.14.0"))
    assert "with Python 3.14.0" in machine.setup().stdout
    machine.environment["PYTHON"] = "python3"
    done = machine.setup()
    assert done.returncode == 0
    assert "keeps its Python 3.14.0; to have 3.11.7, remove that folder first" in done.stdout


def test_a_useless_python_asked_for_is_reported(machine: Machine) -> None:
    machine.python()
    machine.environment["PYTHON"] = "/no/such/python"
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert "note: PYTHON=/no/such/python does not run: looking for another" in done.stdout
    assert "with Python 3.11.7" in done.stdout


def test_without_ensurepip_the_systems_pip_helps(machine: Machine) -> None:
    machine.python()
    machine.behave("no-ensurepip")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert f"system pip for {machine.venv}/bin/python" in machine.calls


@pytest.mark.parametrize("behaviour", ["no-ensurepip no-system-pip", "no-ensurepip no-venv"])
def test_neither_venv_nor_pip_says_what_to_install(machine: Machine, behaviour: str) -> None:
    python = machine.python()
    machine.behave(behaviour)
    done = machine.setup()
    assert done.returncode == 1
    assert f"{python} cannot make environments (no venv or ensurepip module)" in done.stderr
    assert "apt install python3-venv" in done.stderr
    assert "pip install --user virtualenv" in done.stderr
    assert machine.installs == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--extras"], "--extras needs a value"),
        (
            ["--extras", "demo,gpu"],
            "unknown extra 'gpu': pyproject.toml has demo torchaudio bitsandbytes voxceleb remote slurm dev",
        ),
        (["demo"], "unknown argument 'demo': known are --extras LIST and --help"),
    ],
)
def test_wrong_arguments_are_named(machine: Machine, arguments: list[str], message: str) -> None:
    machine.python()
    done = machine.setup(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert machine.calls == []


def test_help_is_printed_without_a_python(machine: Machine) -> None:
    done = machine.setup("--help")
    assert done.returncode == 0
    for word in ("--extras LIST", "PYTHON=", "SVT_VENV="):
        assert word in done.stdout
