"""The package as pip installs it: complete without the source tree, conf/ and recipes included."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import soundfile
import yaml
from paths import ROOT

from svtoolkit import composition
from svtoolkit.config import COMMANDS

CONF = ROOT / "conf"

pytest.importorskip("hatchling", reason="the build backend, which scripts/setup.sh installs")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, ROOT], check=True)
    (built,) = folder.glob("speaker_svtoolkit-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's files and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def run(installed: Path, tmp_path: Path):
    """Runs Python in an empty folder, with the unpacked wheel and its dependencies, but without the source tree.

    -S keeps the .pth file of an editable install, which leads to the source tree, from being read.
    """
    dependencies = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    path = os.pathsep.join([str(installed), *dependencies])

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": path, "PYTHONUTF8": "1"}
        return subprocess.run(
            [sys.executable, "-S", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return call


def test_the_source_tree_is_out_of_sight(run, installed):
    code = "import sys, svtoolkit; print(svtoolkit.__file__); print(*sys.path, sep='\\n')"
    found = run("-c", code)
    assert found.returncode == 0, found.stderr
    file, *path = found.stdout.splitlines()
    assert Path(file) == installed / "svtoolkit" / "__init__.py"
    assert str(ROOT) not in path


def test_conf_is_the_one_of_the_source_tree(installed):
    def files(folder: Path) -> dict[str, bytes]:
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    assert files(installed / "svtoolkit" / "conf") == files(CONF)


def test_every_file_is_there_and_nothing_besides(installed):
    source = [p for p in (ROOT / "svtoolkit").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    files = [p for p in installed.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    held = {p.relative_to(installed).as_posix() for p in files}
    kept = {p.relative_to(ROOT).as_posix() for p in source}
    brought = ("svtoolkit/conf/", "svtoolkit/recipes/")
    assert {name for name in held if ".dist-info/" not in name and not name.startswith(brought)} == kept
    recipes = {f"recipes/{p.parent.name}/{p.name}" for p in (ROOT / "recipes").glob("*/*") if p.is_file()}
    assert {name.removeprefix("svtoolkit/") for name in held if name.startswith("svtoolkit/recipes/")} == {
        *recipes, "recipes/stages.sh"
    }  # fmt: skip
    assert "svtoolkit/reporting/report.html.jinja" in held
    assert "svtoolkit/py.typed" in held
    assert {name.split("/")[0] for name in held if ".dist-info/" not in name} == {"svtoolkit"}


def test_the_entry_point(installed):
    (declared,) = installed.glob("speaker_svtoolkit-*.dist-info/entry_points.txt")
    parser = configparser.ConfigParser()
    parser.read(declared)
    assert dict(parser["console_scripts"]) == {"svt": "svtoolkit.__main__:main"}


def test_train_composes(run):
    words = ["train", "experiment=mini", "margin_schedule=constant", "exp_dir=x", "data.train=y"]
    found = run("-m", "svtoolkit.cli", *words, "--cfg", "job")
    assert found.returncode == 0, found.stderr
    remark, _, shown = found.stdout.partition("\n")
    assert remark.startswith("# margin_schedule=constant replaces ")
    assert shown == composition.to_yaml(composition.compose("train", words[1:]))
    assert yaml.safe_load(found.stdout)["model"]["name"] == "resnet10"


def test_help_of_every_command(run):
    code = (
        "from svtoolkit.cli import main\n"
        f"for command in {sorted(COMMANDS)!r}:\n"
        "    print('status', main([command, '--help']), command)\n"
    )
    found = run("-c", code)
    assert found.returncode == 0, found.stderr
    for command in COMMANDS:
        assert f"svt {command}: " in found.stdout
        assert f"status 0 {command}\n" in found.stdout


def test_a_recipe_is_copied_and_runs_with_the_environment_that_it_came_from(run, tmp_path):
    found = run("-m", "svtoolkit.cli", "recipe", "mini")
    assert found.returncode == 0, found.stderr
    folder = tmp_path / "svtoolkit-mini"
    assert os.access(folder / "run.sh", os.X_OK)
    assert (folder / "stages.sh").read_bytes() == (ROOT / "scripts" / "stages.sh").read_bytes()
    (tmp_path / "svt").write_text('#!/bin/sh\necho "svt $*"\nexit 3\n')
    (tmp_path / "svt").chmod(0o755)
    (folder / "environment").write_text(f"{tmp_path}\n")
    done = subprocess.run(["bash", folder / "run.sh", "--nj", "1"], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == (
        f"svt prepare --corpus synthetic --out {folder}/exp/synthetic/data --eval-speakers 12 --jobs 1"
    )
    assert done.returncode == 3


def test_a_mistyped_key(run):
    found = run("-m", "svtoolkit.cli", "train", "optim.lrr=0.1")
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "error: svt train: there is no key 'optim.lrr'; did you mean 'optim.lr'?\n"


def test_a_package_without_conf_says_so(installed, run, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(installed / "svtoolkit", bare / "svtoolkit", ignore=shutil.ignore_patterns("conf"))
    found = run(
        "-c", f"import sys; sys.path.insert(0, {str(bare)!r}); from svtoolkit.cli import main; main(['train', '-h'])"
    )
    assert found.stderr == (
        f"error: {bare}/svtoolkit: the installation has no conf/ folder; reinstall svtoolkit with pip\n"
    )


def test_an_editable_install_has_no_copy_of_conf_that_could_go_stale(tmp_path):
    code = "import sys; from hatchling.build import build_editable; build_editable(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=True, capture_output=True)
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        assert names == ["_speaker_svtoolkit.pth"]
        assert archive.read(names[0]).decode().strip() == str(ROOT)


def test_the_source_tree_s_own_conf_is_the_one_that_is_used_here():
    assert Path(composition.__file__).is_relative_to(ROOT)
    assert composition.conf_dir() == CONF


def test_an_exported_file_is_verified_without_torch(run, tmp_path):
    pytest.importorskip("onnx")
    from command_material import RATE, voice
    from exported_material import BLOCKED, write_exported

    path = write_exported(tmp_path)
    audio = [str(tmp_path / f"{number}.wav") for number in range(2)]
    for number, file in enumerate(audio):
        soundfile.write(file, voice(number, 0, 1.5), RATE)
    code = BLOCKED.format(blocked={"torch", "scipy", "safetensors", "matplotlib", "kaldiio"})
    found = run(
        "-c", f"{code}\nfrom svtoolkit.cli import main; sys.exit(main(sys.argv[1:]))", "verify", str(path), *audio
    )
    assert found.returncode == 3, found.stderr
    assert found.stdout.startswith("score ")
