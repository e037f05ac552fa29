"""The folders of a corpus, read by os.scandir: names alone, without a stat or a Path a file: fit for a million."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from svtoolkit.audio.inspection import measure_durations
from svtoolkit.audio.m4a import is_left_to_ffmpeg
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError

Measure = Callable[[Mapping[str, str]], dict[str, float]]
"""Utterance -> file becomes utterance -> seconds; what it leaves out is left out of the data directory."""


class Listed(NamedTuple):
    """One audio file of a corpus."""

    utterance: str
    speaker: str
    path: str


def open_corpus(folder: str | Path, expected: str) -> str:
    """The absolute path of a corpus.

    Raises:
        UserError: there is no such folder; says what is expected.
    """
    if not os.path.isdir(folder):
        raise UserError(f"{folder}: there is no such folder; expected {expected}")
    return os.path.abspath(folder)


def subfolders(folder: str) -> list[str]:
    """Paths of the folders in a folder, sorted; hidden ones left out, links followed.

    Raises:
        UserError: a link leads nowhere, as to a disk that is not there: what it stands for would be missing unseen.
    """
    return [entry.path for entry in _shown(folder) if entry.is_dir()]


def _shown(folder: str) -> list[os.DirEntry[str]]:
    """What a folder holds, sorted, without hidden entries; refuses links to nothing."""
    with os.scandir(folder) as entries:
        shown = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.path)
    for entry in shown:
        if entry.is_symlink():
            check_link(entry.path)
    return shown


def check_link(path: str | os.PathLike[str]) -> None:
    """Raise a UserError if the path is a link to nothing, or one that leads to itself."""
    if os.path.islink(path) and not os.path.exists(path):
        raise UserError(
            f"{path}: is a link to {os.readlink(path)}, which is not there; mount or restore what it stands for, or "
            "remove the link"
        )


def audio_files(folder: str, extensions: Collection[str]) -> list[tuple[str, str]]:
    """(name without extension, path) of the files in a folder with one of the extensions, sorted; no hidden ones."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            stem, extension = os.path.splitext(entry.name)
            if extension.lower() in extensions and not stem.startswith("."):
                if entry.is_symlink():
                    check_link(entry.path)
                if not entry.is_dir():
                    found.append((stem, entry.path))
    return sorted(found)


def files_below(folder: str, seen: set[tuple[int, int]] | None = None) -> Iterator[str]:
    """Paths of the files at any depth, sorted, hidden ones left out; each folder once, even where links make a loop.

    Raises:
        UserError: as ``subfolders``.
        OSError: a folder may not be entered; names it.
    """
    seen = set() if seen is None else seen
    status = os.stat(folder)
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    entries = _shown(folder)
    yield from (entry.path for entry in entries if not entry.is_dir())
    for entry in entries:
        if entry.is_dir():
            yield from files_below(entry.path, seen)


def as_id(path: str) -> str:
    r"""A path as an id of a table: white space and ``/`` (of Windows ``\``, too) become ``-``."""
    return "-".join(path.replace("/", " ").replace(os.sep, " ").split())


def make_kaldi_dir(listed: Iterable[Listed], *, jobs: int = 1, measure: Measure | None = None) -> KaldiDir:
    """The data directory of some files, sorted by utterance.

    Args:
        listed: the files, with absolute paths.
        jobs: headers read at a time.
        measure: what reads them; ``measure_durations``, which refuses files that are broken, if None.

    Returns:
        the directory; without durations where a file is left to FFmpeg, which would have to decode it for that.

    Raises:
        UserError: two files of one utterance, files that cannot be read.
    """
    files: dict[str, Listed] = {}
    for item in listed:
        if item.utterance in files:
            raise UserError(
                f"utterance {item.utterance!r} is both {files[item.utterance].path} and {item.path}; keep one of them, "
                "or give the folder of one"
            )
        files[item.utterance] = item
    paths = {utterance: files[utterance].path for utterance in sorted(files)}
    utt2dur: dict[str, float] = {}
    if not any(map(is_left_to_ffmpeg, paths.values())):
        utt2dur = measure_durations(paths, jobs=jobs) if measure is None else measure(paths)
        paths = {utterance: paths[utterance] for utterance in utt2dur}
    return KaldiDir(
        wav_scp=paths,
        utt2spk={utterance: files[utterance].speaker for utterance in paths},
        utt2dur=utt2dur,
    )
