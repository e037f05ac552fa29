"""Atomic writing: the whole new content or the whole old one, and nothing left beside it."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import svtoolkit.system.atomic
from svtoolkit.system.atomic import atomic_folder, atomic_write


@pytest.fixture
def target(tmp_path) -> Path:
    path = tmp_path / "file.txt"
    path.write_text("old content")
    return path


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.fixture
def umask():
    """Sets the umask of the process, and puts the old one back."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def test_text_is_utf8_with_plain_line_ends(tmp_path):
    path = tmp_path / "text"
    with atomic_write(path) as stream:
        stream.write("größer\nзавтра\r\n明日\n")
    assert path.read_bytes() == "größer\nзавтра\r\n明日\n".encode()
    assert names(tmp_path) == ["text"]


def test_bytes_are_written_as_they_are(tmp_path):
    path = tmp_path / "bytes"
    content = bytes(range(256)) * 1000
    with atomic_write(path, "wb") as stream:
        stream.write(content)
    assert path.read_bytes() == content


def test_an_empty_block_makes_an_empty_file(target):
    with atomic_write(target):
        assert target.read_text() == "old content"
    assert target.read_bytes() == b""


def test_the_old_content_is_there_until_the_block_ends(target):
    with atomic_write(target) as stream:
        stream.write("new content")
        stream.flush()
        assert target.read_text() == "old content"
    assert target.read_text() == "new content"
    assert names(target.parent) == ["file.txt"]


def test_an_open_reader_keeps_what_it_opened(target):
    with open(target) as reader:
        with atomic_write(target) as stream:
            stream.write("new content, longer than the old one")
        assert reader.read() == "old content"


def test_missing_folders_are_made(tmp_path):
    with atomic_write(str(tmp_path / "a" / "b" / "file")) as stream:
        stream.write("x")
    assert (tmp_path / "a" / "b" / "file").read_text() == "x"


def test_a_relative_path_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with atomic_write("file") as stream:
        stream.write("x")
    assert (tmp_path / "file").read_text() == "x"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("length", [1, 100, 255])
@pytest.mark.parametrize("letter", ["a", "ü"])
def test_any_name_that_the_file_system_takes(tmp_path, length, letter):
    name = letter * (length // len(letter.encode()) or 1)
    with atomic_write(tmp_path / name) as stream:
        stream.write("x")
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("mode", ["r", "a", "w+", "x", "rb", "ab", ""])
def test_other_modes_are_refused(target, mode):
    with pytest.raises(ValueError, match="mode must be 'w' or 'wb', not "), atomic_write(target, mode):
        pass
    assert target.read_text() == "old content"


# ---- trouble ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_keeps_the_old_content(target, failure):
    with pytest.raises(failure), atomic_write(target) as stream:  # noqa: PT012
        stream.write("half of the new con")
        raise failure
    assert target.read_text() == "old content"
    assert names(target.parent) == ["file.txt"]


def test_an_exception_leaves_no_file_where_there_was_none(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "new") as stream:
        stream.write(str(1 / 0))
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_system_call_keeps_the_old_content(target, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(svtoolkit.system.atomic.os, call, fail)
    with pytest.raises(OSError, match="No space left on device"), atomic_write(target) as stream:
        stream.write("new")
    monkeypatch.undo()
    assert target.read_text() == "old content"
    assert names(target.parent) == ["file.txt"]


def test_what_is_not_flushed_yet_meets_a_full_disk_too(target):
    """The buffer is written when the block ends; the system's refusal then must not go unnoticed."""
    program = f"""
        import resource
        from svtoolkit.system.atomic import atomic_folder, atomic_write
        resource.setrlimit(resource.RLIMIT_FSIZE, (5, resource.RLIM_INFINITY))
        try:
            with atomic_write({str(target)!r}) as stream:
                stream.write("new content")
        except OSError:
            print("refused")
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stdout == "refused\n", run.stderr
    assert target.read_text() == "old content"
    assert names(target.parent) == ["file.txt"]


@pytest.mark.parametrize("path", ["folder", ".", ""])
def test_a_folder_in_the_way_stays(tmp_path, monkeypatch, path):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=r"directory|busy"), atomic_write(path) as stream:
        stream.write("x")
    assert names(tmp_path) == ["folder"]


def test_a_file_in_place_of_the_folder_is_an_error(target):
    with pytest.raises(OSError, match=r"exists|directory"), atomic_write(target / "below"):
        pass
    assert target.read_text() == "old content"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_flush_folders_will_do(target, monkeypatch, number):
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(svtoolkit.system.atomic.os, "fsync", fsync)
    with atomic_write(target) as stream:
        stream.write("new content")
    assert target.read_text() == "new content"


def test_content_and_name_are_flushed_in_this_order(target, monkeypatch):
    calls: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real_fsync(descriptor)

    def replace(source, destination):
        calls.append("rename")
        assert Path(source).read_text() == "new content"
        assert Path(source).parent == Path(destination).parent
        real_replace(source, destination)

    monkeypatch.setattr(svtoolkit.system.atomic.os, "fsync", fsync)
    monkeypatch.setattr(svtoolkit.system.atomic.os, "replace", replace)
    with atomic_write(target) as stream:
        stream.write("new content")
    assert calls == ["file", "rename", "folder"]


# ---- permissions, links, company ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002, 0o027, 0o000])
def test_permissions_follow_the_umask(tmp_path, umask, mask):
    umask(mask)
    with atomic_write(tmp_path / "file") as stream:
        stream.write("x")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask
    assert umask(mask) == mask, "the mask itself stays"


def test_the_umask_is_not_touched_while_others_may_need_it(tmp_path, monkeypatch):
    """It belongs to the whole process: a thread that makes a file meanwhile would make it readable to all."""

    def touched(mask):
        raise AssertionError("umask was set")

    monkeypatch.setattr(svtoolkit.system.atomic.os, "umask", touched)
    with atomic_write(tmp_path / "file") as stream:
        stream.write("x")


def test_a_symbolic_link_is_replaced_and_what_it_named_stays(tmp_path):
    named, link = tmp_path / "named", tmp_path / "link"
    named.write_text("old content")
    link.symlink_to(named)
    with atomic_write(link) as stream:
        stream.write("new content")
    assert not link.is_symlink()
    assert (link.read_text(), named.read_text()) == ("new content", "old content")


def test_a_linked_folder_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_write(tmp_path / "link" / "file") as stream:
        stream.write("x")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["file"]


def test_several_writers_leave_one_whole_file(tmp_path):
    path, contents = tmp_path / "file", [str(number) * 50_000 for number in range(8)]

    def write(content: str) -> None:
        with atomic_write(path) as stream:
            stream.write(content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in contents
    assert names(tmp_path) == ["file"]


def test_the_rest_of_a_killed_writer_is_hidden_and_named_after_the_file(target):
    program = f"""
        import os
        from svtoolkit.system.atomic import atomic_folder, atomic_write
        with atomic_write({str(target)!r}) as stream:
            os._exit(9)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=60, check=False)
    assert killed.returncode == 9
    assert target.read_text() == "old content"
    (rest,) = set(names(target.parent)) - {"file.txt"}
    assert rest.startswith(".file.txt.")
    assert rest.endswith(".tmp")


def test_a_place_that_cannot_be_written_to_is_named_as_it_was_given(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="result") as caught, atomic_write(tmp_path / "file" / "result.json"):
        raise AssertionError("the block must not be entered")
    assert str(caught.value.filename) == str(tmp_path / "file" / "result.json")


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_is_there_at_once(exists, tmp_path):
    path = tmp_path / "above" / "folder"
    if exists:
        path.mkdir(parents=True)
    with atomic_folder(path) as aside:
        (aside / "inner").mkdir()
        (aside / "inner" / "file").write_text("text")
        assert names(tmp_path / "above") == sorted([aside.name, *(["folder"] if exists else [])])
    assert (path / "inner" / "file").read_text() == "text"
    assert names(tmp_path / "above") == ["folder"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("no"), SystemExit(1)])
def test_a_folder_that_could_not_be_filled_leaves_nothing(error, tmp_path):
    def fill(folder: Path) -> None:
        (folder / "file").write_text("text")
        raise error

    with pytest.raises(type(error)), atomic_folder(tmp_path / "folder") as aside:
        fill(aside)
    assert names(tmp_path) == []


def test_errors_of_a_folder_name_the_file_as_it_would_be_called(tmp_path):
    with pytest.raises(FileNotFoundError) as found, atomic_folder(tmp_path / "folder") as aside:
        (aside / "missing").read_text()
    assert found.value.filename == str(tmp_path / "folder" / "missing")


def test_a_folder_that_holds_something_is_kept(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    with pytest.raises(OSError), atomic_folder(tmp_path / "folder") as aside:  # noqa: PT011  # ENOTEMPTY or EEXIST
        (aside / "file").write_text("new")
    assert names(tmp_path) == ["folder"]
    assert (tmp_path / "folder" / "file").read_text() == "old"


def test_on_windows_a_file_that_is_looked_at_is_renamed_a_little_later(tmp_path, monkeypatch):
    plain, refusals = os.replace, [PermissionError(errno.EACCES, "in use")] * 2

    def refuse(*paths: Path) -> None:
        if refusals:
            raise refusals.pop()
        plain(*paths)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError), atomic_write(tmp_path / "file") as stream:
        stream.write("elsewhere it is refused for good")
    refusals[:] = [PermissionError(errno.EACCES, "in use")] * 2
    monkeypatch.setattr(sys, "platform", "win32")
    with atomic_write(tmp_path / "file") as stream:
        stream.write("whole")
    assert (tmp_path / "file").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
