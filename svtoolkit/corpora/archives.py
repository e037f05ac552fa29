"""The archives that the corpora of a VoxCeleb recipe are published in, and whether a download of them is whole.

Sources of the checksums: lists/fileparts.txt, files.txt and augment.txt of
https://github.com/clovaai/voxceleb_trainer (VoxCeleb, MUSAN, RIRS_NOISES; the same in dataset/voxceleb of
https://github.com/PaddlePaddle/PaddleSpeech and in examples/voxceleb/v2/local/download_data.sh of
https://github.com/wenet-e2e/wespeaker); examples/cnceleb/v2/local/download_data.sh there (CN-Celeb as whole files);
recipes/resnet/local/download_cn_celeb.py of https://github.com/mrouvier/kiwano (CN-Celeb2 in parts). The two sizes
were found beside the same md5 (RIRS_NOISES) and beside the SHA-256 that torchaudio.datasets.VoxCeleb1 has of the same
file (VoxCeleb1 test).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from svtoolkit.errors import UserError
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.threads import map_in_order

VOXCELEB_PAGE = "https://www.robots.ox.ac.uk/~vgg/data/voxceleb/"
MUSAN_PAGE = "https://www.openslr.org/17/"
RIRS_PAGE = "https://www.openslr.org/28/"
CNCELEB_PAGE = "https://www.openslr.org/82/"


@dataclass(frozen=True)
class Archive:
    """A published file.

    Attributes:
        name: of the file.
        md5: of its bytes.
        page: where it can be had.
        size: in bytes; None where no source gives it.
    """

    name: str
    md5: str
    page: str
    size: int | None = None


ARCHIVES = (
    Archive("vox1_dev_wav_partaa", "e395d020928bc15670b570a21695ed96", VOXCELEB_PAGE),
    Archive("vox1_dev_wav_partab", "bbfaaccefab65d82b21903e81a8a8020", VOXCELEB_PAGE),
    Archive("vox1_dev_wav_partac", "017d579a2a96a077f40042ec33e51512", VOXCELEB_PAGE),
    Archive("vox1_dev_wav_partad", "7bb1e9f70fddc7a678fa998ea8b3ba19", VOXCELEB_PAGE),
    Archive("vox1_dev_wav.zip", "ae63e55b951748cc486645f532ba230b", VOXCELEB_PAGE),  # of the parts
    Archive("vox1_test_wav.zip", "185fdc63c3c739954633d50379a3d102", VOXCELEB_PAGE, 1_072_793_438),
    Archive("vox2_dev_aac_partaa", "da070494c573e5c0564b1d11c3b20577", VOXCELEB_PAGE),
    Archive("vox2_dev_aac_partab", "17fe6dab2b32b48abaf1676429cdd06f", VOXCELEB_PAGE),
    Archive("vox2_dev_aac_partac", "1de58e086c5edf63625af1cb6d831528", VOXCELEB_PAGE),
    Archive("vox2_dev_aac_partad", "5a043eb03e15c5a918ee6a52aad477f9", VOXCELEB_PAGE),
    Archive("vox2_dev_aac_partae", "cea401b624983e2d0b2a87fb5d59aa60", VOXCELEB_PAGE),
    Archive("vox2_dev_aac_partaf", "fc886d9ba90ab88e7880ee98effd6ae9", VOXCELEB_PAGE),
    Archive("vox2_dev_aac_partag", "d160ecc3f6ee3eed54d55349531cb42e", VOXCELEB_PAGE),
    Archive("vox2_dev_aac_partah", "6b84a81b9af72a9d9eecbb3b1f602e65", VOXCELEB_PAGE),
    Archive("vox2_dev_aac.zip", "bbc063c46078a602ca71605645c2a402", VOXCELEB_PAGE),  # of the parts, by either name
    Archive("vox2_aac.zip", "bbc063c46078a602ca71605645c2a402", VOXCELEB_PAGE),
    Archive("vox2_test_aac.zip", "0d2b3ea430a821c33263b5ea37ede312", VOXCELEB_PAGE),
    Archive("musan.tar.gz", "0c472d4fc0c5141eca47ad1ffeb2a7df", MUSAN_PAGE),
    Archive("rirs_noises.zip", "e6f48e257286e05de56413b4779d8ffb", RIRS_PAGE, 1_311_166_223),
    Archive("cn-celeb_v2.tar.gz", "7ab1b214028a7439e26608b2d5a0336c", CNCELEB_PAGE),
    Archive("cn-celeb2_v2.tar.gzaa", "4cdf738cff565ce35ad34274848659c3", CNCELEB_PAGE),
    Archive("cn-celeb2_v2.tar.gzab", "4ff59a7009b79ef7043498ad3882b81b", CNCELEB_PAGE),
    Archive("cn-celeb2_v2.tar.gzac", "3aa8e6e7f7ec4382f9926b1b31498228", CNCELEB_PAGE),
    Archive("cn-celeb2_v2.tar.gz", "55c47cf0b6d0bf793e88bf79d5dfc660", CNCELEB_PAGE),  # of the parts
)


class ArchiveCheck(NamedTuple):
    """An archive that is there, and what is wrong with it and what to do, one sentence; None if it is whole."""

    path: Path
    problem: str | None


def verify_archives(
    folder: str | Path,
    *,
    names: Collection[str] | None = None,
    jobs: int = 1,
    progress: Callable[[int], object] | None = None,
) -> list[ArchiveCheck]:
    """Compare the archives in a folder with their published checksums; those that are missing are passed over.

    Args:
        folder: where they were downloaded to.
        names: of the archives to look at; None: all that are known.
        jobs: files read at a time.
        progress: called with the bytes read since its last call, from the threads that read.

    Returns:
        a result for each archive that is there, in the order of ``ARCHIVES``.

    Raises:
        UserError: there is no such folder.
    """
    top = Path(folder)
    if not top.is_dir():
        raise UserError(f"{top}: there is no such folder; expected the one that the archives were downloaded to")
    wanted = [archive for archive in ARCHIVES if names is None or archive.name in names]
    present = [archive for archive in wanted if (top / archive.name).is_file()]
    return list(map_in_order(lambda archive: _verify(archive, top / archive.name, progress), present, jobs))


def _verify(archive: Archive, path: Path, progress: Callable[[int], object] | None) -> ArchiveCheck:
    remedy = f"download it again from {archive.page}"
    size = path.stat().st_size
    if archive.size is not None and size != archive.size:
        return ArchiveCheck(path, f"{path}: has {size} bytes, the published archive {archive.size}; {remedy}")
    try:
        md5 = hash_file(path, "md5", progress)
    except OSError as error:
        return ArchiveCheck(path, f"{path}: cannot be read ({error.strerror}); check the disk, or {remedy}")
    if md5 != archive.md5:
        return ArchiveCheck(path, f"{path}: has md5 {md5}, the published archive {archive.md5}; {remedy}")
    return ArchiveCheck(path, None)
