"""svt archives: whether downloaded archives are whole."""

from __future__ import annotations

import sys
from pathlib import Path

from tqdm import tqdm

from svtoolkit.config import ArchivesConfig
from svtoolkit.corpora.archives import ARCHIVES, verify_archives
from svtoolkit.errors import UserError


def run(config: ArchivesConfig, command_line: str) -> int:
    """Print what is wrong with each archive that is there; the exit status is 1 where something is."""
    if config.jobs < 1:
        raise UserError(f"jobs is {config.jobs}, expected 1 or more")
    folder = Path(config.folder)
    total = sum((folder / archive.name).stat().st_size for archive in ARCHIVES if (folder / archive.name).is_file())
    with tqdm(total=total, unit="B", unit_scale=True, desc="archives", dynamic_ncols=True) as bar:
        checks = verify_archives(folder, jobs=config.jobs, progress=bar.update)
    if not checks:
        names = ", ".join(archive.name for archive in ARCHIVES)
        raise UserError(f"{folder}: holds none of the archives that are known ({names}); name the folder they are in")
    for check in checks:
        if check.problem is None:
            print(f"{check.path}: whole")
        else:
            print(check.problem, file=sys.stderr)
    bad = sum(check.problem is not None for check in checks)
    if bad:
        print(f"error: {bad} of {len(checks)} archives are not as they were published", file=sys.stderr)
    return 1 if bad else 0
