"""A program `svt` for tests that starts at once: each call is forked from a process that has imported everything.

For tests of what a command prints, writes and returns. What makes a process a process is kept: arguments, working
directory, environment, standard streams, exit status, and signals, which reach the whole group as Ctrl-C does; a
program that is killed takes its command with it. Processes that train together are forked from the command, not
spawned. Not for tests of what is imported, or of the installed program.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import logging
import multiprocessing.util
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

PRELOADED = (
    "svtoolkit.cli svtoolkit.composition svtoolkit.training.experiment svtoolkit.training.processes hydra omegaconf "
    "yaml torch._dynamo torch.utils.tensorboard soundfile soxr "
    "matplotlib.figure matplotlib.backends.backend_svg matplotlib.backends.backend_agg scipy.optimize kaldiio "
    "torch.utils.flop_counter torch.distributed.fsdp pytest hypothesis espeakng_loader av warm_composition "
    "svtoolkit.models.resnet svtoolkit.reporting.figures svtoolkit.reporting.learning_curves matplotlib.style "
    "svtoolkit.corpora.synthetic.corpus"
).split()

# The shell reads the second line as nothing to do and the third; Python takes lines two to four for a string. A
# first line with Python's own path would end at a blank in it.
CLIENT = """#!/bin/sh
''':'
exec "{python}" -IS "$0" "$@"
'''
import json, os, signal, socket, sys

link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, lambda number, frame: link.sendall(bytes([number])))
request = json.dumps([os.getpid(), sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(link, [len(request).to_bytes(4, "big")], [0, 1, 2])
link.sendall(request)
status = int(link.recv(8) or b"70")
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def start(folder: Path) -> Path:
    """The program; its server is started by the first who asks, and ends with the test run.

    Args:
        folder: shared by all workers of a test run, with a short name: it holds a socket.
    """
    program, address = folder / "svt", folder / "warm"
    with (folder / "warm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            log = (folder / "warm.log").open("w")
            subprocess.Popen(
                [sys.executable, __file__, str(address), str(run)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
            limit = time.monotonic() + 120
            while not address.exists():
                assert time.monotonic() < limit, (folder / "warm.log").read_text()
                time.sleep(0.05)
            program.write_text(CLIENT.format(python=sys.executable, address=str(address)))
            program.chmod(0o755)
    return program


CALL = "--call"
"""First word of a request to call a function instead of a command, which is answered at once by the process's id, of
so many characters as ``ID`` has."""

ID = "%16d"

FOLDER = "WARM_SVT_FOLDER"
"""Environment variable: the folder that all workers of a test run share."""


def connect(request: list[Any], streams: list[int]) -> socket.socket:
    """Send a request, as the program does; what ends it is received: the exit status."""
    folder = Path(os.environ[FOLDER])
    start(folder)
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(folder / "warm"))
    content = json.dumps(request).encode()
    socket.send_fds(link, [len(content).to_bytes(4, "big")], streams)
    link.sendall(content)
    return link


def in_bash(program: Path) -> dict[str, str]:
    """What the environment of a shell script needs for its `svt` to be this one, whatever PATH says."""
    return {"BASH_FUNC_svt%%": f"() {{ '{program}' \"$@\"\n}}"}


def _serve(address: str, run: int) -> None:
    from svtoolkit.config import COMMANDS

    for name in [*PRELOADED, *(f"svtoolkit.commands.{command.replace('-', '_')}" for command in COMMANDS)]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _fork_what_would_be_spawned()
    gc.freeze()
    ended, ends = socket.socketpair()
    ended.setblocking(False)
    ends.setblocking(False)
    signal.set_wakeup_fd(ends.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    os.rename(f"{address}.new", address)
    calls: dict[socket.socket, int] = {}
    while True:
        ready, _, _ = select.select([listener, ended, *calls], [], [], 2)
        if not ready:
            os.kill(run, 0)  # an error, and the end, once the test run is over
        for link in ready:
            if link is listener:
                _begin(listener, calls)
            elif link in calls:
                received = link.recv(1)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(calls[link], received[0] if received else signal.SIGKILL)
                if not received:
                    del calls[link]
        with contextlib.suppress(BlockingIOError):
            ended.recv(1 << 10)
        with contextlib.suppress(ChildProcessError):
            while (exit_ := os.waitpid(-1, os.WNOHANG))[0]:
                for link in [link for link, child in calls.items() if child == exit_[0]]:
                    with contextlib.suppress(OSError):
                        link.sendall(b"%d" % os.waitstatus_to_exitcode(exit_[1]))
                    del calls[link]


RANKS_WAIT = {"RANKS_WAIT": "for a signal"}
"""Environment in which processes that train together begin when a signal has come: others are still importing then."""


def _fork_what_would_be_spawned() -> None:
    from torch.distributed.elastic import multiprocessing as elastic

    start_processes = elastic.start_processes

    def fork_processes(entrypoint: Callable[..., Any], **others: Any) -> Any:
        @wraps(entrypoint)
        def begin(*arguments: Any) -> Any:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # a spawned process has no handlers
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
            if RANKS_WAIT.items() <= os.environ.items():
                os.setpgid(0, 0)  # nothing reaches it but what is forwarded
                while not signal.sigpending():
                    time.sleep(0.01)
            return entrypoint(*arguments)

        return start_processes(entrypoint=begin, start_method="fork", **others)

    elastic.start_processes = fork_processes


def ranks_of(program: subprocess.Popen[str]) -> list[int]:
    """Ids of the processes that a command has started to train together, in order of their rank."""
    name = _name_of(program.pid)
    parents = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (folder / "comm").read_text().strip() == name:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return sorted(pid for pid, parent in parents.items() if parent in parents)


def _name_of(program: int) -> str:
    return f"svt {program}"


def _begin(listener: socket.socket, calls: dict[socket.socket, int]) -> None:
    """Fork a call, in a group of its own."""
    link, _ = listener.accept()
    size, streams, _, _ = socket.recv_fds(link, 4, 3)
    request = b""
    while len(request) < int.from_bytes(size, "big"):
        request += link.recv(1 << 16)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in (listener, link, *calls):
            other.close()
        _call(*json.loads(request), streams)
    for stream in streams:
        os.close(stream)
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(child, child)
    calls[link] = child
    if json.loads(request)[1][:1] == [CALL]:
        link.sendall(ID.encode() % child)


def _call(program: int, words: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> None:
    with contextlib.suppress(PermissionError):
        os.setpgid(0, 0)
    with contextlib.suppress(OSError):  # Linux alone has it
        Path("/proc/self/comm").write_text(_name_of(program))
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for output in (sys.stdout, sys.stderr):
        output.reconfigure(write_through=True)  # type: ignore[union-attr]
    sys.argv = ["svt", *words]
    import torch

    from svtoolkit.cli import main

    # At the end runs what this call has registered, not what the imports had.
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    for function in (weakref.finalize._exitfunc, logging.shutdown, multiprocessing.util._exit_function):  # type: ignore[attr-defined]
        atexit.register(function)
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    try:
        status = _call_function(*words[1:]) if words[:1] == [CALL] else main()
    except SystemExit as end:  # of Hydra
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    # As multiprocessing ends its processes: what was registered is run, what was imported is not taken apart.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            output.flush()
    os._exit(status)


def _call_function(path: str, content: str) -> int:
    sys.path[:] = json.loads(path)
    function, arguments = pickle.loads(bytes.fromhex(content))
    function(*arguments)
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
