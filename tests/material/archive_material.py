"""The miniature corpora of voxceleb_material as the archives that they are published in, parts included."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path


def write_archives(corpora: Path, folder: Path) -> Path:
    """vox1 (dev in four parts), vox2 (in eight), musan and rirs, and the trial list of one_list."""
    folder.mkdir(parents=True)
    _in_parts(_zip(corpora / "vox1" / "dev"), folder / "vox1_dev_wav_part", "abcd")
    (folder / "vox1_test_wav.zip").write_bytes(_zip(corpora / "vox1" / "test"))
    _in_parts(_zip(corpora / "vox2"), folder / "vox2_dev_aac_part", "abcdefgh")
    (folder / "rirs_noises.zip").write_bytes(_zip(corpora, "RIRS_NOISES"))
    with tarfile.open(folder / "musan.tar.gz", "w:gz") as archive:
        archive.add(corpora / "musan", "musan")
    return folder


def _zip(top: Path, only: str = "") -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((top / only).rglob("*")):
            archive.write(path, path.relative_to(top))
    return content.getvalue()


def _in_parts(content: bytes, stem: Path, letters: str) -> None:
    size = -(-len(content) // len(letters))
    for number, letter in enumerate(letters):
        Path(f"{stem}a{letter}").write_bytes(content[number * size : (number + 1) * size])


def tree(folder: Path) -> dict[str, bytes]:
    """Relative path -> content of all files, hidden ones and records left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".") and path.name != "unpacked.json"
    }
