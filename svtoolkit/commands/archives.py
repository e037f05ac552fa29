"""svt archives: whether downloaded archives are whole, and their corpora unpacked."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

from svtoolkit.config import ArchivesConfig
from svtoolkit.corpora.archive_sources import find_sources
from svtoolkit.corpora.archives import ARCHIVES, verify_archives
from svtoolkit.corpora.unpacking import Unpacking
from svtoolkit.errors import UserError
from svtoolkit.system.progress import show_progress


def run(config: ArchivesConfig, command_line: str) -> int:
    """Print what is wrong with each archive that is there; the exit status is 1 where something is.

    With ``unpack`` the archives of its corpora alone are looked at, each once, and then unpacked.
    """
    _check_options(config)
    if config.unpack is None:
        return _check(config, [archive.name for archive in ARCHIVES])
    sources = find_sources(config.folder, config.corpora)
    with Unpacking(config.unpack, config.limit_speakers) as unpacking:
        left = unpacking.begin(sources)
        unchecked = [file.name for source in sources for file in source.files if not unpacking.is_checked(file)]
        if config.check and unchecked:
            if _check(config, unchecked):
                return 1
            unpacking.note_checked(Path(config.folder, name) for name in unchecked)
        with show_progress("unpack", unpacking.bytes_left, "B", scaled=True) as progress:
            unpacking.unpack(left, jobs=config.jobs, progress=progress.update)
    print(f"{config.unpack}: {', '.join(config.corpora)} unpacked")
    return 0


def _check_options(config: ArchivesConfig) -> None:
    if config.jobs < 1:
        raise UserError(f"jobs is {config.jobs}, expected 1 or more")
    if config.unpack is None and (not config.check or config.limit_speakers is not None):
        raise UserError("check and limit_speakers are for unpack=FOLDER; give it, or leave them out")
    if config.unpack is not None and not config.corpora:
        raise UserError("corpora is empty, expected what to unpack, such as corpora=[vox1,vox2]")


def _check(config: ArchivesConfig, names: Collection[str]) -> int:
    folder = Path(config.folder)
    total = sum((folder / name).stat().st_size for name in names if (folder / name).is_file())
    with show_progress("archives", total, "B", scaled=True) as progress:
        checks = verify_archives(folder, names=names, jobs=config.jobs, progress=progress.update)
    if not checks:
        known = ", ".join(archive.name for archive in ARCHIVES)
        raise UserError(f"{folder}: holds none of the archives that are known ({known}); name the folder they are in")
    for check in checks:
        if check.problem is None:
            print(f"{check.path}: whole")
        else:
            print(check.problem, file=sys.stderr)
    bad = sum(check.problem is not None for check in checks)
    if bad:
        print(f"error: {bad} of {len(checks)} archives are not as they were published", file=sys.stderr)
    return 1 if bad else 0
