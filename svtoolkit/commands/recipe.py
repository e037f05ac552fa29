"""svt recipe: a recipe as a folder of one's own, which runs with the environment of this svt."""

from __future__ import annotations

import logging
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from svtoolkit import __version__
from svtoolkit.config import RecipeConfig
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_folder
from svtoolkit.system.output import say_next

log = logging.getLogger(__name__)

PAGE = "README.md"

STAGES, ENVIRONMENT = "stages.sh", "environment"
"""What a copy has beside the recipe's own files: the stages that recipes share, and where its svt is."""


def run(config: RecipeConfig, command_line: str) -> int:
    """List the recipes, or copy one."""
    recipes, stages = find_recipes()
    if config.name is None:
        width = max(map(len, recipes))
        for name, folder in recipes.items():
            log.info("%-*s  %s", width, name, _summary(folder))
        return 0
    if config.name not in recipes:
        raise UserError(f"there is no recipe {config.name!r}; all: {', '.join(recipes)}")
    out = Path(config.out or f"svtoolkit-{config.name}")
    if out.exists() or out.is_symlink():
        raise UserError(f"{out}: is there already; choose another folder with out=DIR, or remove it")
    programs = _programs()
    with atomic_folder(out) as folder:
        for file in [*_own_files(recipes[config.name]), stages]:
            shutil.copyfile(file, folder / file.name)
        page = folder / PAGE
        page.write_text(_alone(page.read_text(encoding="utf-8"), config.name), encoding="utf-8")
        (folder / "run.sh").chmod(0o755)
        if programs is not None:
            (folder / ENVIRONMENT).write_text(f"{programs}\n", encoding="utf-8")
    if programs is None:
        log.warning("there is no svt beside %s: activate its environment and give run.sh --no-setup", sys.executable)
    log.info("%s: the recipe %s", out, config.name)
    say_next("bash", str(out / "run.sh"), "--help")
    return 0


def find_recipes() -> tuple[dict[str, Path], Path]:
    """Name -> folder, and the stages that all share: of the installed package, or of the source tree around it.

    Raises:
        UserError: the installation has none.
    """
    package = Path(__file__).resolve().parents[1]
    source = package.parent
    for recipes, scripts in ((package / "recipes", package / "recipes"), (source / "recipes", source / "scripts")):
        found = {file.parent.name: file.parent for file in sorted(recipes.glob("*/run.sh"))}
        if found and (scripts / STAGES).is_file():
            return found, scripts / STAGES
    raise UserError(f"{package}: the installation has no recipes; reinstall svtoolkit with pip")


def _own_files(folder: Path) -> list[Path]:
    """Scripts and pages; not what a run has left there."""
    return [file for file in sorted(folder.iterdir()) if file.suffix in (".sh", ".md")]


def _summary(folder: Path) -> str:
    """The first sentence of its page."""
    text = (folder / PAGE).read_text(encoding="utf-8")
    paragraph = " ".join(text.split("\n\n")[1].split())
    return paragraph.partition(". ")[0].rstrip(".")


def _alone(page: str, name: str) -> str:
    """The page of a recipe as it reads in a copy: commands as typed in its folder, links into the source as words."""
    page = re.sub(r"\[([^\]]*)\]\((?!https?://)[^)]*\)", r"\1", page.replace(f"recipes/{name}/", ""))
    source = f"RESULTS.md and docs/ are those of svtoolkit {__version__}'s source."
    return f"{page}\nCommands are typed in this folder. {source}\n"


def _programs() -> Path | None:
    """The folder of this environment's svt."""
    called = Path(sys.argv[0]).absolute()  # pip's --user puts it elsewhere
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), called.parent):
        if any((folder / name).is_file() for name in ("svt", "svt.exe")):
            return folder
    return None
