"""scripts/setup.sh, a test a promise: Python and pip suffice, it may be stopped at any time, it says what is wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from setup_stand_ins import ROOT, Machine

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="setup.sh needs bash")


def succeed(machine: Machine, *arguments: str) -> str:
    done = machine.setup(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fail(machine: Machine, *arguments: str) -> str:
    done = machine.setup(*arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def environments(machine: Machine) -> int:
    return sum(call.startswith("venv of") for call in machine.calls)


# ---- what is installed ------------------------------------------------------------------------------------------


def test_from_nothing_to_an_environment_and_then_nothing_more(machine: Machine) -> None:
    machine.python()
    machine.environment["PYTHONPATH"] = "/somebody/elses/packages"
    assert f"source '{machine.venv}/bin/activate'" in succeed(machine, "--extras", "demo,dev")
    build, package, oracles = machine.installs
    assert "-c constraints.txt setuptools hatchling" in build
    assert package.endswith("-c constraints.txt -e .[demo,dev]")
    assert oracles.endswith("-c constraints.txt --no-deps -r tests/oracles.txt")
    assert set((machine.notes / "environment").read_text().splitlines()) == {"PYTHONPATH= PIP_USER=0"}
    for arguments in (["--extras", "dev,demo"], ["--extras", "demo"], ["--extras", ""], []):
        assert "is up to date" in succeed(machine, *arguments)
    assert len(machine.installs) == 3


def test_bitsandbytes_comes_with_an_nvidia_gpu(machine: Machine) -> None:
    machine.python()
    machine.program("nvidia-smi", "echo 'No devices were found'; exit 6")
    succeed(machine)
    machine.program("nvidia-smi", "[[ $1 == -L ]] && echo 'GPU 0: NVIDIA GeForce RTX 2080 Ti (UUID: GPU-1)'")
    succeed(machine)
    assert "is up to date" in succeed(machine, "--extras", "bitsandbytes")
    assert [install.split()[-1] for install in machine.installs[1::2]] == [".", ".[bitsandbytes]"]


def test_extras_add_up_and_the_oracles_come_with_dev(machine: Machine) -> None:
    machine.python()
    for extras in ("demo", "dev"):
        succeed(machine, "--extras", extras)
    ends = [call.partition(" -c constraints.txt ")[2] for call in machine.installs]
    build = "setuptools hatchling editables"
    assert ends == [build, "-e .[demo]", build, "-e .[demo,dev]", "--no-deps -r tests/oracles.txt"]
    assert environments(machine) == 1


def test_an_extra_that_cannot_be_installed_does_not_stick(machine: Machine) -> None:
    machine.python()
    succeed(machine, "--extras", "demo")
    machine.behave("fail")
    fail(machine, "--extras", "torchaudio")
    machine.behave("")
    succeed(machine)
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
    succeed(machine, "--extras", "demo")
    text = (machine.root / name).read_text()
    assert old in text
    (machine.root / name).write_text(text.replace(old, new))
    succeed(machine)
    assert len(machine.installs) == (4 if again else 2)
    assert machine.installs[-1].endswith("-e .[demo]")


# ---- which Python -----------------------------------------------------------------------------------------------


def test_no_usable_python_names_what_was_found(machine: Machine) -> None:
    message = "no Python of 3.10 or newer, found: "
    assert f"{message}none; install one" in fail(machine)
    old = machine.python("python3", "3.8.18")
    broken = machine.program("python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    errors = fail(machine)
    words = f"{old} (Python 3.8.18); {broken} (pyenv: python3.12: command not found); install one"
    for part in (message + words, "PYTHON=/path/to/python3"):
        assert part in errors
    assert list(machine.venv.iterdir()) == []


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ({"python3": "broken", "python3.9": "3.9.1", "python3.12": "3.12.1"}, "3.12.1"),
        ({"python3": "3.15.0", "python3.13": "3.13.0"}, "3.13.0"),  # the tested version before the newer one
        ({"python3": "3.15.0"}, "3.15.0"),
    ],
)
def test_the_best_python_on_the_path_is_taken(machine: Machine, there: dict[str, str], taken: str) -> None:
    for name, version in there.items():
        machine.program(name, "exit 127") if version == "broken" else machine.python(name, version)
    assert f"making {machine.venv} with Python {taken} ({machine.programs}/python3" in succeed(machine)
    assert machine.calls[0] == f"venv of {taken}"


def test_the_python_asked_for_is_taken_or_refused(machine: Machine) -> None:
    machine.python("python3", "3.11.7")
    machine.environment["PYTHON"] = "/no/such/python"
    errors = fail(machine)
    assert "no Python of 3.10 or newer, found: /no/such/python (" in errors
    assert "name it: PYTHON=/path/to/python3" in errors
    machine.environment["PYTHON"] = str(machine.python("my python", "3.14.0"))
    assert "with Python 3.14.0" in succeed(machine)


def test_without_ensurepip_any_pip_helps(machine: Machine) -> None:
    python = machine.python()
    machine.behave("no-ensurepip no-system-pip")
    errors = fail(machine)
    assert f"{python} cannot make an environment with pip" in errors
    assert "apt install python3-venv" in errors
    assert machine.installs == []
    machine.behave("no-ensurepip")
    succeed(machine)
    assert f"system pip to {machine.venv}/lib/python3.11/site-packages" in machine.calls


# ---- which folder -----------------------------------------------------------------------------------------------


def test_another_place_relative_to_the_working_directory(machine: Machine) -> None:
    machine.python()
    machine.environment["SVT_VENV"] = "envs/my env"
    for _ in range(2):
        succeed(machine)
    assert (machine.elsewhere / "envs" / "my env" / "pyvenv.cfg").exists()
    assert not machine.venv.exists()
    assert len(machine.installs) == 2


def test_an_environment_of_conda_is_installed_into_and_loses_nothing(machine: Machine) -> None:
    conda = machine.elsewhere / "conda"
    (conda / "conda-meta").mkdir(parents=True)
    (conda / "bin").mkdir()
    shutil.copy(machine.python(), conda / "bin" / "python")
    without_record = conda / "lib" / "python3.11" / "site-packages" / "of_conda-1.dist-info"
    without_record.mkdir(parents=True)
    machine.environment["SVT_VENV"] = str(conda)
    assert "is up to date" not in succeed(machine)
    assert environments(machine) == 0
    assert machine.installs[-1].endswith("-e .")
    assert without_record.is_dir()


def test_what_others_put_in_a_folder_is_left_alone(machine: Machine) -> None:
    python = machine.python()
    machine.environment["SVT_VENV"] = str(machine.elsewhere)
    (machine.elsewhere / "mine").write_text("precious")
    assert "holds files but no Python environment" in fail(machine)
    assert [path.name for path in machine.elsewhere.iterdir()] == ["mine"]
    (machine.elsewhere / "pyvenv.cfg").touch()
    (machine.elsewhere / "bin").mkdir()
    refusal = f"{machine.elsewhere}, made by other means, has no Python of 3.10 or newer with pip: choose another place"
    assert refusal in fail(machine)
    inside = machine.elsewhere / "bin" / "python"
    shutil.copy(machine.python("old", "3.8.18"), inside)
    assert refusal in fail(machine)
    shutil.copy(python, inside)
    machine.behave("fail")  # an environment made by hand is completed, also where the first attempt ends early
    fail(machine)
    machine.behave("")
    succeed(machine)
    assert "is up to date" in succeed(machine)
    inside.unlink()
    assert refusal in fail(machine)
    assert environments(machine) == 0
    assert len(machine.installs) == 3
    assert (machine.elsewhere / "mine").read_text() == "precious"


def test_a_place_that_cannot_be_written(machine: Machine) -> None:
    machine.python()
    machine.venv.touch()
    assert f"cannot make {machine.venv}: choose another place with SVT_VENV=" in fail(machine)
    machine.venv.unlink()
    (machine.venv / ".svt-lock").mkdir(parents=True)  # a file cannot be opened here, for root neither
    assert f"cannot write in {machine.venv}: choose another place with SVT_VENV=" in fail(machine)


def test_an_environment_of_ours_that_has_become_useless_is_made_anew(machine: Machine, tmp_path: Path) -> None:
    machine.python()
    succeed(machine, "--extras", "demo")
    (machine.venv / "bin" / "python").unlink()
    (machine.venv / "bin" / "python").symlink_to("/no/such/python")
    assert f"making {machine.venv} with" in succeed(machine)
    machine.root = shutil.copytree(machine.root, tmp_path / "copy")
    machine.venv = machine.root / ".venv"
    assert f"making {tmp_path}/copy/.venv with" in succeed(machine)
    machine.venv.rename(tmp_path / "moved alone")
    machine.environment["SVT_VENV"] = str(tmp_path / "moved alone")
    assert f"making {tmp_path}/moved alone with" in succeed(machine)
    machine.environment["SVT_VENV"] = str(machine.venv)
    assert environments(machine) == 4
    assert all(call.endswith("-e .[demo]") for call in machine.installs[1::2])


def test_a_python_that_was_replaced_behind_the_environment(machine: Machine) -> None:
    """The link in the environment leads to another version, which does not see the packages."""
    machine.python()
    succeed(machine)
    shutil.copy(machine.python("python3", "3.12.1"), machine.venv / "bin" / "python")
    machine.behave("lost-pip")
    assert "with Python 3.12.1" in succeed(machine)
    assert "is up to date" in succeed(machine)


# ---- stopped at any moment ----------------------------------------------------------------------------------------


def test_ctrl_c_during_the_installation_and_again(machine: Machine) -> None:
    machine.python()
    machine.behave("hang")
    process = machine.start("--extras", "demo")
    machine.wait_for(machine.notes / "hangs")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; run the same command again to continue" in errors
    half = machine.venv / "lib" / "python3.11" / "site-packages" / "half-1.0.dist-info"
    whole = half.with_name("whole-1.0.dist-info")
    for folder in (half, whole):
        folder.mkdir(parents=True)
    (whole / "RECORD").touch()
    machine.behave("")
    succeed(machine, "--extras", "demo")
    assert environments(machine) == 1
    assert not half.exists()
    assert whole.exists()
    assert machine.installs[-1].endswith("-e .[demo]")
    assert "is up to date" in succeed(machine, "--extras", "demo")


def test_a_half_made_environment_is_made_anew(machine: Machine) -> None:
    machine.python()
    machine.behave("half-made")
    assert "cannot make an environment" in fail(machine)
    (machine.venv / "leftover").touch()
    machine.behave("")
    succeed(machine)
    assert not (machine.venv / "leftover").exists()
    assert "is up to date" in succeed(machine)
    assert environments(machine) == 2


def test_a_second_set_up_waits_for_the_first(machine: Machine) -> None:
    machine.python()
    machine.behave("hang")
    first = machine.start()
    machine.wait_for(machine.notes / "hangs")
    machine.behave("")
    second = machine.start()
    assert second.stdout is not None
    assert f"waiting for another set-up of {machine.venv}" in second.stdout.readline()
    assert second.poll() is None
    os.killpg(first.pid, signal.SIGKILL)  # the lock goes with its holder
    first.communicate(timeout=30)
    output, errors = second.communicate(timeout=30)
    assert second.returncode == 0, errors
    assert "ready after" in output


# ---- what it says -------------------------------------------------------------------------------------------------


def test_a_failing_pip_is_explained_and_continued_from(machine: Machine) -> None:
    machine.python()
    machine.behave("fail", "ERROR: No matching distribution found for torch==9")
    done = machine.setup()
    assert done.returncode == 1
    assert "ERROR: No matching distribution found for torch==9" in done.stdout  # pip's own words
    assert f"pip stopped (see above and {machine.venv}/setup.log)" in done.stderr
    for remedy in (
        "Disk full: CUDA's torch needs about 8 GB; TMPDIR=... moves temporary files, SVT_VENV=... the environment.",
        "Index out of reach: check https_proxy, 'pip config list'.",
        f"Nothing that fits this Python: remove {machine.venv} and name another with PYTHON=...",
    ):
        assert remedy in done.stderr
    assert len(machine.installs) == 1
    machine.behave("")
    succeed(machine)
    assert environments(machine) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--extras"], "takes --extras LIST (like demo,dev) or --help, not '--extras'"),
        (["--extras", "demo,gpu"], f"unknown extra 'gpu': pyproject.toml has {' '.join(EXTRAS)}"),
        (["demo"], "takes --extras LIST (like demo,dev) or --help, not 'demo'"),
    ],
)
def test_wrong_arguments_are_named(machine: Machine, arguments: list[str], message: str) -> None:
    machine.python()
    assert message in fail(machine, *arguments)
    assert machine.calls == []


def test_help_is_printed_without_a_python(machine: Machine) -> None:
    output = succeed(machine, "--help")
    for word in ("--extras LIST", "PYTHON=", "SVT_VENV="):
        assert word in output


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh"])
def test_a_shell_that_sources_it_is_told_what_to_run_and_left_alone(machine: Machine, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    script = f'. "{machine.root}/scripts/setup.sh"; echo "status $?"; false; echo "here still"'
    done = subprocess.run([found, "-c", script], capture_output=True, text=True, timeout=60)
    assert "run  bash scripts/setup.sh  and then  source .venv/bin/activate" in done.stderr
    assert done.stdout == "status 1\nhere still\n"
    assert machine.calls == []
