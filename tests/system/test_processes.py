"""Worker processes: what they answer, whom they obey, and that none is left however the work ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from svtoolkit.errors import UserError
from svtoolkit.system.processes import worker_processes

UNIX = pytest.mark.skipif(os.name != "posix", reason="signals of Unix")


def test_they_work_and_are_gone(tmp_path):
    with worker_processes(2, killed="") as workers:
        results = [workers.submit(pow, 2, number) for number in range(20)]
        names = {workers.submit(os.getpid).result() for _ in range(4)}
        assert [result.result() for result in results] == [2**number for number in range(20)]
        assert os.getpid() not in names
        assert len(multiprocessing.active_children()) <= 2
        with pytest.raises(FileNotFoundError, match="missing"):
            workers.submit(os.stat, tmp_path / "missing").result()
    assert multiprocessing.active_children() == []


def test_leaving_begins_no_more(tmp_path):
    with worker_processes(1, killed="") as workers:
        workers.submit(time.sleep, 2)
        for number in range(20):
            workers.submit(os.mkdir, tmp_path / str(number))
    assert len(list(tmp_path.iterdir())) < 20, "what is handed to a process already may still be done"
    assert multiprocessing.active_children() == []


@UNIX
def test_a_killed_process_is_the_sentence():
    with (
        pytest.raises(UserError, match=r"^one was killed; use fewer$"),
        worker_processes(2, killed="one was killed; use fewer") as workers,
    ):
        workers.submit(signal.raise_signal, signal.SIGKILL).result()
    assert multiprocessing.active_children() == []


@UNIX
def test_ctrl_c_is_not_for_them():
    with worker_processes(1, killed="") as workers:
        assert workers.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_IGN
        workers.submit(signal.raise_signal, signal.SIGINT).result()
        assert workers.submit(pow, 2, 3).result() == 8


@UNIX
def test_ctrl_c_waits_for_the_start_of_a_process():
    """A process that was just started has not yet come to ignore it; in a program of its own, as Ctrl-C meets it."""
    code = """
        import signal
        from concurrent.futures import ProcessPoolExecutor
        from svtoolkit.system.processes import worker_processes

        submit, started = ProcessPoolExecutor.submit, []

        def interrupt(executor, *arguments):
            signal.raise_signal(signal.SIGINT)
            started.append(submit(executor, *arguments))
            return started[0]

        if __name__ == "__main__":
            ProcessPoolExecutor.submit = interrupt
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                with worker_processes(1, killed="") as workers:
                    workers.submit(pow, 2, 3)
            except KeyboardInterrupt:
                print(started[0].result(), signal.pthread_sigmask(signal.SIG_BLOCK, []))
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("8 set()\n", 0), run.stderr


@UNIX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_they_end_with_the_process_they_work_for(number):
    code = f"""
        import os, time
        from svtoolkit.system.processes import worker_processes

        if __name__ == "__main__":
            with worker_processes(2, killed="") as workers:
                workers.submit(time.sleep, 100)
                workers.submit(os.getpid).result()
                os.kill(os.getpid(), {int(number)})
                time.sleep(100)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    process.communicate(timeout=60)  # the pipe ends when the last worker has ended
    assert process.returncode == -number


@pytest.mark.skipif(sys.platform != "linux", reason="others start afresh")
def test_forked_ones_have_what_is_there_and_obey_alike(monkeypatch):
    monkeypatch.setitem(sys.modules, "made_here", sys)
    with worker_processes(1, killed="", forked=True) as workers:
        assert workers.submit(_has, "made_here").result()
        assert workers.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_IGN
    with worker_processes(1, killed="") as workers:
        assert not workers.submit(_has, "made_here").result()
    with pytest.raises(UserError, match=r"^killed$"), worker_processes(1, killed="killed", forked=True) as workers:
        workers.submit(signal.raise_signal, signal.SIGKILL).result()
    assert multiprocessing.active_children() == []


def _has(name: str) -> bool:
    return name in sys.modules
