"""Host memory for activations: used again, never too large by much, and mapped from files that leave nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from offload_material import plain

from svtoolkit.errors import UserError
from svtoolkit.memory.host_pool import HostPool, MappedFolder


def test_buffers_are_used_again_for_what_is_nearly_as_large():
    pool = HostPool(plain)
    large, small = pool.take(100_000), pool.take(10_000)
    assert pool.allocated == len(large.memory) + len(small.memory)
    pool.give(large)
    pool.give(small)
    assert pool.take(9_000) is small
    assert pool.take(20_000) is not large
    assert pool.take(60_000) is large
    assert pool.take(60_000) is not large


def test_values_of_a_type():
    buffer = HostPool(plain).take(40)
    buffer.view(10, torch.float32).copy_(torch.arange(10.0))
    assert buffer.view(3, torch.float32).tolist() == [0, 1, 2]


def test_a_folder_is_mapped_and_holds_no_file_afterwards(tmp_path: Path):
    pool = HostPool(MappedFolder(tmp_path))
    buffer = pool.take(10_000)
    buffer.view(2500, torch.float32).copy_(torch.arange(2500.0))
    assert torch.equal(buffer.view(2500, torch.float32), torch.arange(2500.0))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(number: int, begin: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(UserError, match=r"memory\.folder .* has no room for 8192 more bytes"):
        HostPool(MappedFolder(tmp_path)).take(8000)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_folder_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    for name in ("file", "missing"):
        with pytest.raises(UserError, match=r"memory\.folder is .*, expected a folder that exists"):
            MappedFolder(tmp_path / name)
