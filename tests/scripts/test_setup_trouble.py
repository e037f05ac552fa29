"""scripts/setup.sh when something is in the way: full disks, foreign folders, failing pips, interruptions."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from setup_stand_ins import Machine

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="setup.sh needs bash")


def test_full_disk_is_found_before_anything_is_made(machine: Machine) -> None:
    machine.python()
    machine.program("df", "echo header; echo '/dev/x 99999999 1 921600 99% /'")
    done = machine.setup()
    assert done.returncode == 1
    assert "about 2500 MB are needed, 900 MB are free" in done.stderr
    assert "SVT_VENV=" in done.stderr
    assert not machine.venv.exists()


def test_with_torch_installed_less_space_will_do(machine: Machine) -> None:
    machine.python()
    assert machine.setup().returncode == 0
    (machine.venv / "lib" / "python3.11" / "site-packages" / "torch-2.0.dist-info").mkdir(parents=True)
    machine.program("df", "echo header; echo '/dev/x 99999999 1 921600 99% /'")
    assert machine.setup("--extras", "demo").returncode == 0


def test_a_folder_with_other_things_is_left_alone(machine: Machine) -> None:
    machine.python()
    machine.environment["SVT_VENV"] = str(machine.elsewhere)
    (machine.elsewhere / "thesis.tex").write_text("precious")
    done = machine.setup()
    assert done.returncode == 1
    assert "holds files but no Python environment" in done.stderr
    assert [path.name for path in machine.elsewhere.iterdir()] == ["thesis.tex"]


def test_an_environment_of_an_old_python_is_refused(machine: Machine) -> None:
    machine.python()
    assert machine.setup().returncode == 0
    old = machine.python("python3.8", "3.8.18")
    shutil.copy(old, machine.venv / "bin" / "python")
    done = machine.setup()
    assert done.returncode == 1
    assert f"{machine.venv} holds Python 3.8.18, svtoolkit needs 3.10 or newer" in done.stderr


def test_an_environment_made_by_hand_is_completed(machine: Machine) -> None:
    python = machine.python()
    (machine.venv / "bin").mkdir(parents=True)
    shutil.copy(python, machine.venv / "bin" / "python")
    (machine.venv / "pyvenv.cfg").touch()
    (machine.venv / "mine").touch()
    assert machine.setup().returncode == 0
    assert "venv" not in machine.calls
    assert len(machine.installs) == 2
    assert (machine.venv / "mine").exists()


def test_an_environment_whose_python_is_gone_is_made_anew(machine: Machine) -> None:
    machine.python()
    assert machine.setup("--extras", "demo").returncode == 0
    (machine.venv / "bin" / "python").unlink()
    (machine.venv / "bin" / "python").symlink_to("/no/such/python")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert "making it anew" in done.stdout
    assert machine.calls.count("venv") == 2
    assert machine.installs[-1].endswith("-e .[demo]")


def test_a_broken_environment_of_somebody_else_is_refused(machine: Machine) -> None:
    machine.python()
    foreign = machine.elsewhere / "foreign"
    foreign.mkdir()
    (foreign / "pyvenv.cfg").touch()
    machine.environment["SVT_VENV"] = str(foreign)
    done = machine.setup()
    assert done.returncode == 1
    assert "does not run: remove it, or name another" in done.stderr
    assert (foreign / "pyvenv.cfg").exists()


def test_a_copied_tree_gets_an_environment_of_its_own(machine: Machine, tmp_path: Path) -> None:
    machine.python()
    assert machine.setup().returncode == 0
    machine.root = shutil.copytree(machine.root, tmp_path / "copy")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/copy/.venv was moved, or its Python is gone: making it anew" in done.stdout
    assert machine.calls.count("venv") == 2


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("ERROR: something else", "pip stopped with exit code 1"),
        (
            "WARNING: Retrying after NewConnectionError('...')\nERROR: No matching distribution found for torch",
            "index cannot",
        ),
        ("ERROR: No matching distribution found for torch==9", "nothing that fits Python 3.11.7"),
        ("ERROR: ResolutionImpossible: for help visit", "nothing that fits Python 3.11.7"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
    ],
)
def test_a_failing_pip_shows_the_end_of_its_log(machine: Machine, output: str, reason: str) -> None:
    machine.python()
    lines = "\n".join(f"line {number}" for number in range(1, 41))
    machine.behave("fail", f"{lines}\n{output}\n")
    done = machine.setup()
    assert done.returncode == 1
    assert reason in done.stderr
    assert output.splitlines()[-1] in done.stderr
    assert "line 40\n" in done.stderr
    assert "line 2\n" not in done.stderr
    log = machine.venv / "setup.log"
    assert f"The whole log: {log}." in done.stderr
    assert "line 2\n" in log.read_text()
    assert len(machine.installs) == 1
    machine.behave("")
    assert machine.setup().returncode == 0
    assert machine.calls.count("venv") == 1


def test_progress_shows_large_downloads_and_counts_packages(machine: Machine) -> None:
    machine.python()
    machine.behave(
        "talk",
        "Collecting torch\n  Downloading torch.whl (190.1 MB)\n  Downloading tqdm.whl (78 kB)\n"
        "Installing collected packages: a, b, c",  # the last line without its end
    )
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert "Downloading torch.whl (190.1 MB)" in done.stdout
    assert "tqdm" not in done.stdout
    assert "installing 3 packages" in done.stdout


def test_ctrl_c_during_the_installation_is_gone_on_from(machine: Machine) -> None:
    machine.python()
    machine.behave("hang")
    process = machine.start("--extras", "demo")
    machine.wait_for(machine.notes / "hangs")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; run the same command again to go on" in errors
    half = machine.venv / "lib" / "python3.11" / "site-packages" / "half-1.0.dist-info"
    whole = half.with_name("whole-1.0.dist-info")
    for folder in (half, whole):
        folder.mkdir(parents=True)
    (whole / "RECORD").touch()
    machine.behave("")
    assert machine.setup("--extras", "demo").returncode == 0
    assert machine.calls.count("venv") == 1
    assert not half.exists()
    assert whole.exists()
    assert machine.installs[-1].endswith("-e .[demo]")
    assert "is up to date" in machine.setup("--extras", "demo").stdout


def test_a_half_made_environment_is_made_anew(machine: Machine) -> None:
    machine.python()
    machine.behave("half-made")
    done = machine.setup()
    assert done.returncode == 1
    assert "python -m venv failed" in done.stderr
    (machine.venv / "leftover").touch()
    machine.behave("")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert not (machine.venv / "leftover").exists()
    assert machine.calls.count("venv") == 2


def test_a_second_set_up_waits_for_the_first(machine: Machine) -> None:
    machine.python()
    machine.behave("hang")
    first = machine.start()
    machine.wait_for(machine.notes / "hangs")
    machine.behave("")
    second = machine.start()
    assert second.stdout is not None
    assert "another set-up of" in second.stdout.readline()
    assert second.poll() is None
    os.killpg(first.pid, signal.SIGKILL)  # the lock goes with its holder
    first.communicate(timeout=30)
    output, errors = second.communicate(timeout=30)
    assert second.returncode == 0, errors
    assert "ready after" in output
