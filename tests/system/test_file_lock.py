from __future__ import annotations

import errno
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from other_systems import locks_of_windows

from svtoolkit.system import file_lock
from svtoolkit.system.file_lock import NoLocksError, delete_lock, hold_lock

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks of Unix")


def hold_and_leave(path: Path) -> None:
    with hold_lock(path):
        assert path.exists()


@pytest.fixture
def on_windows(monkeypatch):
    monkeypatch.setattr(file_lock, "fcntl", None)
    monkeypatch.setattr(file_lock, "msvcrt", locks_of_windows())
    monkeypatch.setattr(file_lock, "POLL_SECONDS", 0.01)


@pytest.mark.usefixtures("on_windows")
def test_on_windows_a_lock_is_held_by_one_and_the_file_keeps_what_it_holds(tmp_path):
    (tmp_path / "lock").write_text("content")
    test_a_lock_is_held_by_one(tmp_path)
    assert (tmp_path / "lock").read_text() == "content"


@pytest.mark.usefixtures("on_windows")
def test_on_windows_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))  # what ERROR_INVALID_FUNCTION becomes

    monkeypatch.setattr(file_lock.msvcrt, "locking", refuse)
    with pytest.raises(NoLocksError) as error, hold_lock(tmp_path / "lock"):
        pytest.fail("held without a lock")
    assert error.value.filename == str(tmp_path / "lock")


@pytest.mark.parametrize("deletes_open_files", [True, False])
def test_a_lock_that_is_deleted_is_gone_in_the_end(tmp_path, monkeypatch, deletes_open_files):
    path, unlink = tmp_path / "lock", Path.unlink

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "it is open in a process")

    with hold_lock(path):
        if not deletes_open_files:
            monkeypatch.setattr(Path, "unlink", refuse)
        delete_lock(path)
        assert path.exists() is not deletes_open_files
        monkeypatch.setattr(Path, "unlink", unlink)
    assert not path.exists()
    with hold_lock(path):
        pass
    assert path.exists(), "asked for once, not for ever"


def test_a_lock_is_held_by_one(tmp_path):
    path = tmp_path / "lock"
    with hold_lock(path):
        with pytest.raises(BlockingIOError), hold_lock(path, wait=False):
            pytest.fail("held twice")
        waiting = threading.Thread(target=hold_and_leave, args=(path,), daemon=True)
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
    waiting.join(10)
    assert not waiting.is_alive()
    with hold_lock(path, wait=False):
        assert path.exists()


def test_a_file_keeps_what_it_holds(tmp_path):
    path = tmp_path / "lock"
    path.write_text("content")
    with hold_lock(path):
        pass
    assert path.read_text() == "content"


def test_a_child_that_was_forked_meanwhile_does_not_keep_it(tmp_path):
    path = tmp_path / "lock"
    asked, answer = os.pipe()
    with hold_lock(path):
        child = os.fork()
        if not child:
            os.read(asked, 1)
            os._exit(0)
    try:
        with hold_lock(path, wait=False):
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child was to live while the lock is taken again"
    finally:
        os.write(answer, b"x")
        os.waitpid(child, 0)
        os.close(asked)
        os.close(answer)


def test_a_child_that_outlives_the_holder_does_not_keep_it(tmp_path):
    path = tmp_path / "lock"
    said, say = os.pipe()
    holder = os.fork()
    if not holder:
        try:
            with hold_lock(path):
                if child := os.fork():
                    os.write(say, b"%d" % child)
                time.sleep(60)
        finally:
            os._exit(1)
    child = int(os.read(said, 20))
    try:
        with pytest.raises(BlockingIOError), hold_lock(path, wait=False):
            pytest.fail("held twice")
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        with hold_lock(path, wait=False):
            os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(said)
        os.close(say)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told(number, tmp_path, monkeypatch):
    def refuse(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    with pytest.raises(NoLocksError) as error, hold_lock(tmp_path / "lock"):
        pytest.fail("held without a lock")
    assert (error.value.errno, error.value.filename) == (number, str(tmp_path / "lock"))


def test_another_refusal_stays_what_it_is(tmp_path, monkeypatch):
    def refuse(*_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    with pytest.raises(OSError, match="Input/output error") as error, hold_lock(tmp_path / "lock"):
        pytest.fail("held without a lock")
    assert not isinstance(error.value, NoLocksError)


def test_a_system_without_locks_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(file_lock, "fcntl", None)
    monkeypatch.setattr(file_lock, "msvcrt", None)
    with pytest.raises(NoLocksError) as error, hold_lock(tmp_path / "lock"):
        pytest.fail("held without a lock")
    assert error.value.filename == str(tmp_path / "lock")
