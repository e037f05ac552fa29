"""Makes a process behave like Windows where svtoolkit could notice: what Unix alone has is gone, open files stay."""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import shutil
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")
OF_OS = """
    fork forkpty register_at_fork pread preadv pwrite pwritev sync sched_getaffinity sched_setaffinity getuid geteuid
    getgid getegid getgroups setpgid getpgid getpgrp setsid killpg mkfifo mknod fchmod fchown chown lchown chroot nice
    statvfs fstatvfs uname getloadavg posix_fadvise posix_fallocate sendfile sysconf wait wait3 wait4 WNOHANG
    O_CLOEXEC O_DIRECTORY O_NONBLOCK O_NOFOLLOW O_SYNC O_DSYNC O_NOCTTY O_TMPFILE O_NOATIME
""".split()
OF_SIGNAL = """
    SIGHUP SIGQUIT SIGKILL SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE SIGSTOP SIGTSTP SIGCONT SIGWINCH
    pthread_sigmask pthread_kill sigwait sigwaitinfo sigtimedwait sigpending alarm setitimer getitimer pause
    SIG_BLOCK SIG_UNBLOCK SIG_SETMASK
""".split()


def forget_svtoolkit() -> None:
    """It is imported anew, by a process that has torch already."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "svtoolkit"]:
        del sys.modules[name]


def behave_like_windows() -> None:
    """For good: only in a process of its own, which does nothing else afterwards."""
    sys.modules["msvcrt"] = locks_of_windows()
    sys.modules |= dict.fromkeys(MODULES)  # type: ignore[arg-type]  # None: importing it fails
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    os.open = _no_folders(os.open)
    for name in ("unlink", "remove", "rename", "replace"):
        setattr(os, name, _not_of_open_files(getattr(os, name)))
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    forget_svtoolkit()


def locks_of_windows() -> types.ModuleType:
    """A stand-in for msvcrt: a byte is locked for one open file at a time, and asking for it waits for nobody."""
    module: Any = types.ModuleType("msvcrt")
    module.LK_UNLCK, module.LK_LOCK, module.LK_NBLCK = 0, 1, 2

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert count == 1
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > os.fstat(descriptor).st_size, "who reads the file would fail"
        assert mode != module.LK_LOCK, "gives up after ten seconds"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN if mode == module.LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error

    module.locking = locking
    return module  # type: ignore[no-any-return]


def import_all_commands() -> None:
    from svtoolkit.config import COMMANDS

    for name in COMMANDS:
        importlib.import_module(f"svtoolkit.commands.{name.replace('-', '_')}")


def _no_folders(call: Callable[..., int]) -> Callable[..., int]:
    def opened(path: Any, *arguments: Any, **options: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return call(path, *arguments, **options)

    return opened


def _not_of_open_files(call: Callable[..., None]) -> Callable[..., None]:
    def changed(*paths: Any, **options: Any) -> None:
        for path in paths:
            if os.path.realpath(path) in _open_files():
                raise PermissionError(errno.EACCES, "it is open in a process", str(path))
        call(*paths, **options)

    return changed


def _open_files() -> set[str]:
    """Paths of the files that this process has open or mapped."""
    opened = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
    mapped = (line.split(maxsplit=5)[5:] for line in Path("/proc/self/maps").read_text().splitlines())
    return opened | {words[0] for words in mapped if words}
