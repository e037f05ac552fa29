"""The official archives that corpora are unpacked from, by the names that they go by, whole or in parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from svtoolkit.corpora.archives import ARCHIVES
from svtoolkit.errors import UserError

VOX2 = "vox2"

WANTED = {
    "vox1": (("vox1_dev_wav.zip", "vox1_dev_wav_part"), ("vox1_test_wav.zip",)),
    VOX2: (("vox2_dev_aac.zip", "vox2_aac.zip", "vox2_dev_aac_part"),),
    "musan": (("musan.tar.gz",),),
    "rirs": (("rirs_noises.zip",),),
}
"""Folder of a corpus -> its archives, each by the names that it goes by; one that ends in `part` comes in parts."""


class Source(NamedTuple):
    """An archive: the corpus that it is of, and its file, or the parts of it in their order."""

    corpus: str
    files: tuple[Path, ...]

    @property
    def name(self) -> str:
        last = f" to {self.files[-1].name}" if len(self.files) > 1 else ""
        return f"{self.files[0]}{last}"

    @property
    def is_zip(self) -> bool:
        return not self.files[0].name.endswith(".tar.gz")


def find_sources(folder: str | Path, corpora: Sequence[str]) -> list[Source]:
    """The archives of some corpora.

    Args:
        folder: where they were downloaded to.
        corpora: keys of ``WANTED``.

    Raises:
        UserError: an unknown corpus; an archive or a part of one is missing; names all that are.
    """
    unknown = [corpus for corpus in corpora if corpus not in WANTED]
    if unknown:
        raise UserError(f"corpora lists {unknown[0]!r}, expected of {', '.join(WANTED)}")
    sources, missing = [], []
    for corpus in corpora:
        for names in WANTED[corpus]:
            files = _find(Path(folder), names)
            absent = [file.name for file in files if not file.is_file()]
            if absent:
                whole = f" (or {names[0]})" if len(files) > 1 else ""
                missing.append(f"{', '.join(absent)} of {corpus}{whole}")
            sources.append(Source(corpus, files))
    if missing:
        raise UserError(
            f"{folder}: lacks {'; '.join(missing)}; download them there, or leave the corpus out of corpora"
        )
    return sources


def _find(folder: Path, names: Sequence[str]) -> tuple[Path, ...]:
    """The file of the first name that is there, else the parts as published, else the first file."""
    for name in names:
        if not name.endswith("part") and (folder / name).is_file():
            return (folder / name,)
    parts = [archive.name for archive in ARCHIVES if names[-1].endswith("part") and archive.name.startswith(names[-1])]
    return tuple(folder / part for part in parts or names[:1])
