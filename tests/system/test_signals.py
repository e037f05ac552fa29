"""Signals: remembered by the loop, and ignored by loader workers unless their parent sends them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from svtoolkit.system.processes import block_signals
from svtoolkit.system.signals import ASKING, StopRequest, ignore_terminal_signals, leave_on_interrupt


@pytest.fixture(autouse=True)
def handlers_stay():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_is_remembered_and_the_second_acts(number):
    acted = []
    before = signal.signal(number, lambda *_: acted.append("acted"))
    try:
        with StopRequest() as stop:
            assert stop.signal_number is None
            os.kill(os.getpid(), number)
            assert stop.signal_number == number
            assert not acted
            os.kill(os.getpid(), number)
            assert acted == ["acted"]
            assert stop.signal_number == number
    finally:
        signal.signal(number, before)


def test_a_second_ctrl_c_interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        interrupt_twice()
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_twice() -> None:
    with StopRequest():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_come_back_after_an_error_too():
    before = signal.getsignal(signal.SIGTERM)

    def fail():
        with StopRequest():
            assert signal.getsignal(signal.SIGTERM) != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def work(ready, stop) -> None:
    ignore_terminal_signals()
    ready.set()
    stop.wait(60)


@pytest.fixture
def worker():
    """A process that works until it is told to stop, and the event that tells it."""
    context = multiprocessing.get_context("fork")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=work, args=(ready, stop), daemon=True)
    process.start()
    assert ready.wait(30)
    yield process, stop
    process.kill()
    process.join()


def test_a_worker_ignores_ctrl_c_and_the_batch_system(worker):
    process, stop = worker
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
        subprocess.run(["kill", f"-{int(number)}", str(process.pid)], check=True)
    time.sleep(0.1)
    assert process.is_alive()
    stop.set()
    process.join(30)
    assert process.exitcode == 0


@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="this system cannot tell who sent a signal")
def test_a_worker_ends_when_its_parent_terminates_it(worker):
    process, _ = worker
    process.terminate()
    process.join(30)
    assert process.exitcode == 0


def test_ctrl_c_while_modules_are_imported_is_a_word_and_the_end(capfd):
    """Whatever would have caught a KeyboardInterrupt."""
    if not (child := os.fork()):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
        with leave_on_interrupt():
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert capfd.readouterr().err == "interrupted\n"


def test_who_ignores_or_handles_ctrl_c_goes_on_to_do_so():
    acted = []
    before = signal.signal(signal.SIGINT, lambda *_: acted.append("acted"))
    try:
        with leave_on_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with leave_on_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert acted == ["acted"]


def test_a_process_begun_while_signals_wait_has_them_blocked_in_threads_of_before():
    """A thread that a library starts before the process ignores signals does not take them."""
    code = (
        "import threading, time, sys; sys.path.insert(0, '.');"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start();"
        "from svtoolkit.system.signals import ignore_terminal_signals; ignore_terminal_signals();"
        "print('ready', flush=True); time.sleep(60)"
    )
    with block_signals(ASKING):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        subprocess.run(["kill", "-TERM", str(process.pid)], check=True)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
    finally:
        process.kill()
        process.communicate()
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
