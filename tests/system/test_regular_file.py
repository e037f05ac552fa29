"""What is read is a regular file."""

from __future__ import annotations

import os
import socket

import pytest

from svtoolkit.errors import UserError
from svtoolkit.system.regular_file import check_regular, is_regular


def test_files_and_links_to_them(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "link to a link").symlink_to("link")
    assert all(is_regular(tmp_path / name) for name in ("file", "link", "link to a link"))
    check_regular(tmp_path / "link")


def test_nothing_and_folders(tmp_path):
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    for name in ("", "missing", "dangling", "loop", "file/below", "null\0"):
        assert not is_regular(f"{tmp_path}/{name}")
        check_regular(f"{tmp_path}/{name}")


def test_pipes_devices_and_sockets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    os.mkfifo("pipe")
    os.symlink("pipe", "link")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name, kind in (("pipe", "pipe"), ("link", "pipe"), ("/dev/zero", "device"), ("socket", "socket")):
            for check in (is_regular, check_regular):
                with pytest.raises(
                    UserError, match=f"^{name}: is a {kind}, expected a regular file; write its content"
                ):
                    check(name)
