"""Checksums of files, block by block."""

from __future__ import annotations

import hashlib

import pytest

from svtoolkit.system import checksum
from svtoolkit.system.checksum import hash_file


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
@pytest.mark.parametrize("size", [0, 1, 1000, 1001])
def test_a_file_of_several_blocks(tmp_path, monkeypatch, algorithm, size):
    monkeypatch.setattr(checksum, "BLOCK", 500)
    content = bytes(range(256)) * 4
    (tmp_path / "a").write_bytes(content[:size])
    read: list[int] = []
    assert hash_file(tmp_path / "a", algorithm, read.append) == hashlib.new(algorithm, content[:size]).hexdigest()
    assert sum(read) == size


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(OSError, match="a"):
        hash_file(tmp_path / "a")
