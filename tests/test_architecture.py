"""The import rule of the package, checked by import-linter as pyproject.toml configures it, and the page about it.

That the check can fail is shown on a package of empty modules with the names of the real ones: with the same
pyproject.toml it passes, and with one forbidden import it does not.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

PACKAGES = (
    "commands composition training reporting serving deploy planning distributed runtime enrolment scoring "
    "checkpoints crops corpora losses optim models compression memory augmentation data runs audio loggers config "
    "system reversible features"
)
MODULES = "cli device registry errors"


def lint_imports(folder: Path) -> tuple[int, str]:
    """Exit status and output of import-linter for the svtoolkit and the pyproject.toml in a folder."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", code, "--no-cache"]
    plain = {"PYTHONUTF8": "1", "COLUMNS": "200", "NO_COLOR": "1", "FORCE_COLOR": ""}
    run = subprocess.run(
        command, cwd=folder, env=os.environ | plain, capture_output=True, encoding="utf-8", check=False
    )
    return run.returncode, " ".join((run.stdout + run.stderr).split())


def skeleton_in(folder: Path) -> Path:
    """The real rules over modules that import nothing."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    package = folder / "svtoolkit"
    for name in PACKAGES.split():
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
        (package / name / "first.py").touch()
        (package / name / "second.py").touch()
    (package / "commands" / "train.py").touch()
    (package / "distributed" / "sharded_head.py").touch()
    (package / "distributed" / "class_shards.py").write_text("import svtoolkit.distributed.sharded_head\n")
    (package / "commands" / "multirun.py").write_text("import svtoolkit.commands.train\n")
    (package / "commands" / "crossval.py").write_text("import svtoolkit.commands.train\n")
    (package / "__init__.py").write_text("def offer():\n    import svtoolkit.commands.train\n")
    (package / "data" / "inner").mkdir()
    (package / "data" / "inner" / "__init__.py").touch()
    (package / "data" / "inner" / "third.py").touch()
    for name in ["__init__", "__main__", *MODULES.split()]:
        (package / f"{name}.py").touch()
    return folder


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    return skeleton_in(tmp_path)


def test_svtoolkit_keeps_the_rule():
    status, output = lint_imports(ROOT)
    assert status == 0, output
    assert "Contracts: 6 kept, 0 broken." in output


def test_the_skeleton_keeps_the_rule(skeleton):
    status, output = lint_imports(skeleton)
    assert status == 0, output
    assert "Contracts: 6 kept, 0 broken." in output


def test_imports_downwards_and_within_a_package_are_allowed(skeleton):
    package = skeleton / "svtoolkit"
    (package / "cli.py").write_text("import svtoolkit.commands.first\nimport svtoolkit.composition.first\n")
    (package / "commands" / "first.py").write_text("import svtoolkit.training.first\nimport svtoolkit.config\n")
    (package / "training" / "first.py").write_text("import svtoolkit.training.second\nimport svtoolkit.errors\n")
    (package / "data" / "first.py").write_text("from svtoolkit import system\nimport svtoolkit.features.first\n")
    status, output = lint_imports(skeleton)
    assert status == 0, output


UPWARDS, MATHEMATICS = "nothing imports upwards", "features and reversible know nothing of svtoolkit"
NO_TORCH = "what runs exported models imports no torch"
COMMANDS, SHARDED = "commands do not import each other", "nothing outside distributed asks whether a head is sharded"
FORBIDDEN = [
    ("data.first", "training.first", UPWARDS),
    ("data.inner.third", "crops.first", UPWARDS),
    ("models.first", "data.first", UPWARDS),
    ("losses.first", "optim", UPWARDS),
    ("training.first", "composition", UPWARDS),
    ("reporting.first", "commands.first", UPWARDS),
    ("errors", "config", UPWARDS),
    ("features.first", "errors", MATHEMATICS),
    ("features.first", "data.first", MATHEMATICS),
    ("features.first", "reversible", MATHEMATICS),
    ("reversible.first", "system", MATHEMATICS),
    ("reversible.first", "features.first", MATHEMATICS),
    ("commands.first", "commands.second", COMMANDS),
    ("training.first", "distributed.sharded_head", SHARDED),
    ("planning.first", "distributed.class_shards", SHARDED),
]
"""Importer, imported, the rule that it breaks."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """Exit status and output for the skeleton with all forbidden imports, each on the line of its number."""
    folder = skeleton_in(tmp_path_factory.mktemp("broken"))
    for number, (importer, imported, _) in enumerate(FORBIDDEN, 2):
        file = folder / "svtoolkit" / f"{importer.replace('.', '/')}.py"
        lines = (file.read_text() or "def run():").splitlines()
        lines += ["    pass"] * (number - 1 - len(lines)) + [f"    from svtoolkit.{imported} import something"]
        file.write_text("\n".join(lines) + "\n")
    return lint_imports(folder)


@pytest.mark.parametrize(("number", "importer", "imported", "rule"), [(n, *row) for n, row in enumerate(FORBIDDEN, 2)])
def test_a_forbidden_import_is_found(broken, number, importer, imported, rule):
    status, output = broken
    assert status == 1, output
    assert f"{rule} BROKEN" in output
    _, heading, details = output.partition(f" {rule} ---")
    assert heading
    for other in (UPWARDS, MATHEMATICS, NO_TORCH, COMMANDS, SHARDED):
        details = details.partition(f" {other} ---")[0]
    assert f"svtoolkit.{importer} -> svtoolkit.{imported} (l.{number})" in details


def test_torch_behind_what_runs_exported_models_is_found(skeleton):
    package = skeleton / "svtoolkit"
    (package / "scoring" / "first.py").write_text("def run():\n    import torch\n")
    status, output = lint_imports(skeleton)
    assert status == 0, output
    (package / "runtime" / "first.py").write_text("import svtoolkit.scoring.first\n")
    status, output = lint_imports(skeleton)
    assert status == 1, output
    assert f"{NO_TORCH} BROKEN" in output
    assert "svtoolkit.scoring.first -> torch (l.2)" in output


def test_a_package_without_a_layer_is_found(skeleton):
    (skeleton / "svtoolkit" / "utils.py").touch()
    status, output = lint_imports(skeleton)
    assert status == 1, output
    assert "not listed as layers: - svtoolkit.utils" in output
    assert "Give a new package its line in the layers of pyproject.toml." in output


@pytest.mark.parametrize(
    "imports",
    [
        {"data/first": "data.second", "data/second": "data.first"},
        {"data/first": "data.inner.third", "data/inner/third": "data.second", "data/second": "data.first"},
        {"data/first": "data.inner", "data/inner/third": "data.first"},
    ],
    ids=["two files", "a file and a folder around a third", "a folder and a file beside it"],
)
def test_a_circle_inside_a_package_is_found(skeleton, imports):
    for importer, imported in imports.items():
        (skeleton / "svtoolkit" / f"{importer}.py").write_text(f"import svtoolkit.{imported}\n")
    status, output = lint_imports(skeleton)
    assert status == 1, output
    assert "no circle between folders or files at any depth BROKEN" in output


# ---- docs/architecture.md -----------------------------------------------------------------------------------------

PAGE = runpy.run_path(str(ROOT / "scripts" / "architecture_page.py"))
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.fixture
def rooms(skeleton: Path) -> Path:
    """The skeleton with a docstring in each room."""
    for name in PACKAGES.split():
        (skeleton / "svtoolkit" / name / "__init__.py").write_text(f'"""The room {name}: one | two.\n\nMore."""\n')
    for name in MODULES.split():
        (skeleton / "svtoolkit" / f"{name}.py").write_text(f'"""The file {name}. More."""\n')
    return skeleton


def test_the_page_shows_the_rooms_as_the_code_has_them():
    assert PAGE["drawn"](TEXT) == PAGE["draw_rooms"](), "run: python scripts/architecture_page.py"


def test_every_room_is_on_the_page_once_and_in_the_order_of_the_layers():
    package = ROOT / "svtoolkit"
    found = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    found |= {path.name for path in package.glob("*.py") if not path.stem.startswith("__")}
    shown = re.findall(r"^\| `(.+?)` \| \S", TEXT, flags=re.MULTILINE)
    assert sorted(shown) == sorted(found)
    pictured = re.findall(r"\w+", PAGE["drawn"](TEXT).partition("\n\n")[0])
    assert pictured == [room.removesuffix("/").removesuffix(".py") for room in shown]
    assert pictured[:3] == ["cli", "commands", "composition"]


def test_every_room_that_the_page_speaks_of_exists():
    named = set(re.findall(r"`(\w+)/`", TEXT))
    assert len(named) > 20
    assert {name for name in named if not (ROOT / "svtoolkit" / name / "__init__.py").is_file()} == set()


def test_a_room_is_drawn_with_the_first_sentence_of_its_docstring(rooms):
    picture, _, table = PAGE["draw_rooms"](rooms).partition("\n\n")
    assert picture.splitlines()[:4] == [
        "    cli",
        "    commands",
        "    composition",
        "    training | reporting | serving | deploy",
    ]
    assert table.splitlines()[2:4] == [
        "| `cli.py` | The file cli. |",
        r"| `commands/` | The room commands: one \| two. |",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda package: (package / "utils.py").write_text('"""Of no layer."""\n'), "no layer .*: utils"),
        (lambda package: (package / "audio" / "__init__.py").write_text(""), r"audio/__init__\.py: has no docstring"),
    ],
    ids=["no layer", "no docstring"],
)
def test_a_room_that_cannot_be_drawn_is_refused(rooms, change, message):
    change(rooms / "svtoolkit")
    with pytest.raises(ValueError, match=message):
        PAGE["draw_rooms"](rooms)


def test_another_docstring_makes_the_page_stale(rooms):
    before = PAGE["draw_rooms"](rooms)
    (rooms / "svtoolkit" / "errors.py").write_text('"""Something else."""\n')
    assert PAGE["draw_rooms"](rooms) != before
