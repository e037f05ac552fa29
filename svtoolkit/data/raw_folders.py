"""A folder that is given for a data directory and is none: what it is instead, and the command that makes one of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from svtoolkit.audio.formats import is_audio
from svtoolkit.data.audio_table import AUDIO_TABLES
from svtoolkit.errors import UserError

PARTS = ("train", "dev", "valid", "validation", "eval", "evaluation", "test")
"""What folders of a split corpus are called."""

LOOKED_AT = 20_000
"""Entries of a folder in which audio is looked for: a message should not take minutes."""

TABLES = (*AUDIO_TABLES.values(), "utt2spk", "spk2utt", "segments", "utt2dur")


def refuse_other_folders(folder: Path, corpus: str = "folders") -> None:
    """Refuse what is no data directory, but from which one can be made or chosen; anything else passes.

    Args:
        folder: given for a data directory.
        corpus: of ``svt prepare``, that recordings in it are.

    Raises:
        UserError: a table instead of its folder, the parent of data directories, or recordings without tables.
    """
    if folder.is_file():
        remedy = f"give its folder, {folder.parent}" if folder.name in TABLES else "make one with `svt prepare`"
        raise UserError(f"{folder}: is a file, expected a data directory, a folder with wav.scp and utt2spk; {remedy}")
    if not folder.is_dir() or any((folder / name).is_file() for name in TABLES):
        return
    inner = [path for path in _subfolders(folder) if is_data_directory(path)]
    if inner:
        names = ", ".join(path.name for path in inner)
        raise UserError(
            f"{folder}: holds the data {'directories' if len(inner) > 1 else 'directory'} {names}, and is none itself; "
            f"give {' or '.join(map(str, inner))}"
        )
    if any(is_audio(path) for path in _files_below(folder)):
        raise UserError(f"{folder}: holds recordings, but no wav.scp and utt2spk; {_how_to_prepare(folder, corpus)}")


def is_data_directory(folder: Path) -> bool:
    """Whether it has the tables, of files, shards or features."""
    return (folder / "utt2spk").is_file() and any((folder / name).is_file() for name in AUDIO_TABLES.values())


def parts_of(folder: Path) -> list[Path]:
    """The folders of a split corpus, where a folder holds no others; empty where it is none."""
    inner = _subfolders(folder)
    return inner if len(inner) > 1 and all(path.name.lower() in PARTS for path in inner) else []


def prepare_command(source: Path, out: Path, corpus: str = "folders") -> str:
    """`svt prepare ...` that makes a data directory of recordings, as a shell takes it."""
    words = ["svt", "prepare", "--corpus", corpus, "--source", str(source), "--out", str(out)]
    return f"`{shlex.join(words)}`"


def _how_to_prepare(folder: Path, corpus: str) -> str:
    folder = folder.resolve() if folder.name in ("", "..") else folder
    out = folder.with_name(f"{folder.name}_data")
    parts = parts_of(folder) if corpus == "folders" else []
    if parts:
        commands = " and ".join(prepare_command(part, out / part.name) for part in parts)
        return f"make data directories of its parts with {commands}, and give {out / parts[0].name}"
    made = f"{prepare_command(folder, out, corpus)}, and give {out}"
    if corpus == "folders" and any(is_audio(path) for path in _entries(folder) if os.path.isfile(path)):
        return f"move those of each speaker into a folder of its own, {folder}/<speaker>, make a data directory: {made}"
    return f"make a data directory of it with {made}"


def _entries(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []


def _subfolders(folder: Path) -> list[Path]:
    return [Path(path) for path in _entries(folder) if os.path.isdir(path)]


def _files_below(folder: Path) -> Iterator[str]:
    """Files at any depth, nearest first, as far as ``LOOKED_AT`` goes; links to folders are not followed."""
    waiting, seen = [folder], 0
    while waiting:
        for path in _entries(waiting.pop(0)):
            seen += 1
            if seen > LOOKED_AT:
                return
            if os.path.isdir(path):
                if not os.path.islink(path):
                    waiting.append(Path(path))
            else:
                yield path
