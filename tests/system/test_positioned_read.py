"""Positions are the caller's: as with os.pread, which not every system has."""

from __future__ import annotations

import os

import pytest

from svtoolkit.system.positioned_read import open_binary, read_at


@pytest.mark.parametrize("has_pread", [True, False])
def test_bytes_from_a_position(tmp_path, monkeypatch, has_pread):
    (tmp_path / "file").write_bytes(b"one\r\n\x1atwo")
    if not has_pread:
        monkeypatch.delattr(os, "pread")
    descriptor = open_binary(tmp_path / "file")
    try:
        assert read_at(descriptor, 3, 6) == b"two"
        assert read_at(descriptor, 6, 0) == b"one\r\n\x1a"
        assert read_at(descriptor, 100, 6) == b"two"
        assert read_at(descriptor, 1, 100) == b""
    finally:
        os.close(descriptor)


def test_windows_is_told_that_it_is_no_text(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(os, "O_BINARY", 0x8000, raising=False)
    opened = []
    monkeypatch.setattr(os, "open", lambda path, flags: opened.append(flags) or 7)
    assert open_binary(tmp_path / "file") == 7
    assert opened == [os.O_RDONLY | 0x8000]
