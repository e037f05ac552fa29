"""Many files, one flush: none has its name before its content is on the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from svtoolkit.system import atomic_batch as module
from svtoolkit.system.atomic_batch import atomic_batch


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def calls(monkeypatch) -> list[tuple[str, list[str]]]:
    """Flushes, with the temporary files that are there, and names given."""
    made: list[tuple[str, list[str]]] = []
    flush, replace = module._sync_file_system, os.replace

    def flushed(path: Path) -> None:
        made.append(("flush", names(path.parent)))
        flush(path)

    def renamed(source: Path, target: Path) -> None:
        made.append(("name", [source.name, target.name]))
        replace(source, target)

    monkeypatch.setattr(module, "_sync_file_system", flushed)
    monkeypatch.setattr(module.os, "replace", renamed)
    return made


def test_all_content_is_flushed_once_before_the_first_gets_its_name(tmp_path, calls):
    with atomic_batch() as write:
        for number in range(5):
            write(str(tmp_path / f"{number}.wav"), bytes([number]) * 9)
        assert calls == []
        assert all(name.endswith(".tmp") for name in names(tmp_path))
    (kind, there), *renamed = calls
    assert kind == "flush"
    assert [kind for kind, _ in renamed] == ["name"] * 5
    assert {source for _, (source, _) in renamed} == set(there)
    assert [(tmp_path / f"{number}.wav").read_bytes() for number in range(5)] == [bytes([n]) * 9 for n in range(5)]
    assert names(tmp_path) == [f"{number}.wav" for number in range(5)]


def test_what_was_there_is_replaced_and_folders_are_made(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with atomic_batch() as write:
        write(str(tmp_path / "a"), b"new")
        write(str(tmp_path / "deep" / "er" / "b"), b"first")
        assert (tmp_path / "a").read_bytes() == b"old"
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a", "deep/er/b"]


def test_of_nothing_nothing_is_flushed(calls):
    with atomic_batch():
        pass
    assert calls == []


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failure_between_two_files_keeps_the_first(tmp_path, calls, failure):
    def work() -> None:
        with atomic_batch() as write:
            write(str(tmp_path / "a"), b"whole")
            raise failure

    with pytest.raises(failure):
        work()
    assert [kind for kind, _ in calls] == ["flush", "name"]
    assert names(tmp_path) == ["a"]


def test_what_cannot_be_flushed_gets_no_name(tmp_path, monkeypatch):
    def fail(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "_sync_file_system", fail)

    def work() -> None:
        with atomic_batch() as write:
            write(str(tmp_path / "a"), b"lost")
            write(str(tmp_path / "b"), b"lost")

    with pytest.raises(OSError, match="No space left on device") as caught:
        work()
    assert caught.value.filename == str(tmp_path / "a")
    assert names(tmp_path) == []


def test_a_flush_that_the_system_refuses_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_syncfs", lambda: lambda descriptor: -1)
    with pytest.raises(OSError, match="Input/output error"), atomic_batch() as write:
        write(str(tmp_path / "a"), b"lost")


def test_where_there_is_no_flush_of_one_file_system_all_are_flushed(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "_syncfs", lambda: None)
    monkeypatch.setattr(module.os, "sync", lambda: asked.append(names(tmp_path)))
    with atomic_batch() as write:
        write(str(tmp_path / "a"), b"whole")
    assert len(asked) == 1
    assert asked[0] != ["a"]
    assert names(tmp_path) == ["a"]
