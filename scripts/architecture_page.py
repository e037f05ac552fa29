"""The rooms of docs/architecture.md as the code has them: layers of pyproject.toml, docstrings of svtoolkit/.

python scripts/architecture_page.py        writes them into the page
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from importlinter.api import read_configuration

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("docs", "architecture.md")
BEGIN, END = "<!-- begin: scripts/architecture_page.py -->\n", "<!-- end -->"


def draw_rooms(root: Path = ROOT) -> str:
    """The layers from top to bottom, and a row for each package or module of svtoolkit/ in that order.

    Raises:
        ValueError: a room without a layer or without a docstring.
    """
    layers = [[room for room in layer if _source(root, room)] for layer in _layers(root)]
    layers = [layer for layer in layers if layer]
    placed = [room for layer in layers for room in layer]
    found = {path.stem for path in (root / "svtoolkit").glob("[!_.]*") if path.suffix == ".py" or path.is_dir()}
    homeless = sorted(room for room in found - set(placed) if _source(root, room))
    if homeless:
        raise ValueError(f"no layer in pyproject.toml: {', '.join(homeless)}")
    picture = "\n".join(f"    {' | '.join(layer)}" for layer in layers)
    rows = "\n".join(f"| `{_label(root, room)}` | {_first_sentence(root, room)} |" for room in placed)
    return f"{picture}\n\n| room | what is in it |\n|---|---|\n{rows}\n"


def drawn(page: str) -> str:
    """The part of a page that ``draw_rooms`` writes."""
    return page.partition(BEGIN)[2].partition(END)[0]


def _layers(root: Path) -> list[list[str]]:
    contracts = read_configuration(str(root / "pyproject.toml"))["contracts_options"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[room.strip(" ()") for room in layer.split("|")] for layer in layers]


def _source(root: Path, room: str) -> Path | None:
    """The file whose docstring says what a room is for; None where there is no such room."""
    package = root / "svtoolkit"
    return next((file for file in (package / room / "__init__.py", package / f"{room}.py") if file.is_file()), None)


def _label(root: Path, room: str) -> str:
    return f"{room}/" if (root / "svtoolkit" / room).is_dir() else f"{room}.py"


def _first_sentence(root: Path, room: str) -> str:
    source = _source(root, room)
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) if source else None
    if not docstring:
        raise ValueError(f"{source}: has no docstring that says what is in it")
    return " ".join(re.split(r"(?<=\.)\s", docstring)[0].split()).replace("|", r"\|")


def main() -> None:
    page = ROOT / PAGE
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(BEGIN + drawn(text) + END, BEGIN + draw_rooms() + END), encoding="utf-8")


if __name__ == "__main__":
    main()
