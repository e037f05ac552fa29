"""A file in parts reads as if it were one."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from svtoolkit.system.joined_file import JoinedFile


def write_parts(folder: Path, content: bytes, cuts: list[int]) -> list[Path]:
    bounds = [0, *cuts, len(content)]
    parts = [folder / f"part{number}" for number in range(len(cuts) + 1)]
    for part, begin, end in zip(parts, bounds, bounds[1:], strict=False):
        part.write_bytes(content[begin:end])
    return parts


@pytest.mark.parametrize("cuts", [[], [1], [500], [10, 10, 999], [0, 300, 600, 1000]])
def test_any_stretch_is_that_of_the_whole(tmp_path, cuts):
    content = np.random.default_rng(0).integers(0, 256, 1000, dtype=np.uint8).tobytes()
    with io.BufferedReader(JoinedFile(write_parts(tmp_path, content, cuts)), 64) as stream:
        assert stream.read() == content
        for begin, size in ((0, 5), (9, 3), (499, 200), (990, 50), (1000, 1)):
            stream.seek(begin)
            assert stream.tell() == begin
            assert stream.read(size) == content[begin : begin + size]
        assert stream.seek(-10, io.SEEK_END) == 990
        assert stream.read() == content[-10:]


def test_a_zip_is_read_through_it(tmp_path):
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for number in range(20):
            archive.writestr(f"folder/{number}", bytes([number]) * 999)
    parts = write_parts(tmp_path, whole.getvalue(), [777, 5000, 5001])
    with zipfile.ZipFile(io.BufferedReader(JoinedFile(parts))) as archive:
        assert archive.testzip() is None
        assert archive.read("folder/17") == bytes([17]) * 999


def test_before_the_beginning_there_is_nothing(tmp_path):
    with JoinedFile(write_parts(tmp_path, b"abc", [1])) as stream, pytest.raises(ValueError, match="before the begin"):
        stream.seek(-1)
