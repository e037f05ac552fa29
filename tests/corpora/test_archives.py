from __future__ import annotations

import hashlib
import re

import pytest

from svtoolkit.corpora import archives
from svtoolkit.corpora.archives import ARCHIVES, Archive, verify_archives
from svtoolkit.errors import UserError
from svtoolkit.system import checksum

GOOD = b"an archive of speech" * 1000
PAGE = "https://example.org/corpus/"


@pytest.fixture
def table(monkeypatch) -> None:
    md5 = hashlib.md5(GOOD).hexdigest()
    listed = (
        Archive("whole.zip", md5, PAGE, len(GOOD)),
        Archive("short.zip", md5, PAGE, len(GOOD)),
        Archive("changed.tar.gz", md5, PAGE),
        Archive("missing.tar.gz", md5, PAGE),
        Archive("also_whole.tar.gz", md5, PAGE),
    )
    monkeypatch.setattr(archives, "ARCHIVES", listed)


@pytest.mark.parametrize("jobs", [1, 3])
def test_archives_that_are_there_are_checked(jobs, table, tmp_path, monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK", 1 << 12)
    for name, content in (
        ("whole.zip", GOOD),
        ("short.zip", GOOD[:-1]),
        ("changed.tar.gz", GOOD[:-1] + b"!"),
        ("also_whole.tar.gz", GOOD),
        ("another.zip", b"not listed"),
    ):
        (tmp_path / name).write_bytes(content)
    seen: list[int] = []
    results = verify_archives(tmp_path, jobs=jobs, progress=seen.append)
    assert [result.path.name for result in results] == [
        "whole.zip",
        "short.zip",
        "changed.tar.gz",
        "also_whole.tar.gz",
    ]
    assert [result.problem is None for result in results] == [True, False, False, True]
    assert sum(seen) == 3 * len(GOOD)
    assert results[1].problem == (
        f"{tmp_path}/short.zip: has 19999 bytes, the published archive 20000; download it again from {PAGE}"
    )
    assert re.fullmatch(
        rf"{tmp_path}/changed\.tar\.gz: has md5 (\w{{32}}), the published archive {hashlib.md5(GOOD).hexdigest()}; "
        rf"download it again from {PAGE}",
        results[2].problem,
    )


def test_an_archive_that_cannot_be_read_is_a_result(table, tmp_path, monkeypatch):
    path = tmp_path / "also_whole.tar.gz"
    path.write_bytes(GOOD)

    def no_open(*arguments, **options):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(archives.Path, "open", no_open)
    (result,) = verify_archives(tmp_path)
    assert result.problem == (
        f"{path}: cannot be read (Input/output error); check the disk, or download it again from {PAGE}"
    )


def test_an_empty_folder_and_none(tmp_path):
    assert verify_archives(tmp_path) == []
    with pytest.raises(
        UserError, match=r"nowhere: there is no such folder; expected the one that the archives were down"
    ):
        verify_archives(tmp_path / "nowhere")


def test_the_table_of_archives():
    names = [archive.name for archive in ARCHIVES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[0-9a-f]{32}", archive.md5) for archive in ARCHIVES)
    # One file goes by two names; all others differ.
    assert len({archive.md5 for archive in ARCHIVES}) == len(ARCHIVES) - 1
    assert [names.count(f"vox1_dev_wav_parta{letter}") for letter in "abcd"] == [1] * 4
    assert [names.count(f"vox2_dev_aac_parta{letter}") for letter in "abcdefgh"] == [1] * 8
    assert all(archive.page.startswith("https://") for archive in ARCHIVES)
