"""The peak follows what is allocated, and forgets it where the system can."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

import pytest
import torch

from svtoolkit.memory import peak
from svtoolkit.memory.peak import peak_bytes, reset_peak

torch.set_num_threads(1)

CPU = torch.device("cpu")
SIZE = 128 * 2**20


def allocate() -> None:
    """Touch SIZE bytes in pages that go back to the system afterwards."""
    assert torch.ones(SIZE, dtype=torch.uint8)[-1] == 1


def test_the_peak_rises_by_what_is_allocated_and_stays():
    reset_peak(CPU)
    before = peak_bytes(CPU)
    allocate()
    after = peak_bytes(CPU)
    assert 0.9 * SIZE < after - before < 1.5 * SIZE
    assert peak_bytes(CPU) >= after


def test_a_reset_forgets_the_peak():
    allocate()
    high = peak_bytes(CPU)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system has no resettable peak (Linux: /proc/self/clear_refs)")
    if peak_bytes(CPU) == high:
        pytest.skip("this system takes the order to reset the peak and does nothing")
    allocate()
    high = peak_bytes(CPU)
    reset_peak(CPU)
    assert high - peak_bytes(CPU) > 0.9 * SIZE


def test_the_peak_is_in_bytes():
    """Of this process, in the unit of getrusage: kilobytes on Linux."""
    unit = 1 if sys.platform == "darwin" else 1024
    whole_life = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    reset_peak(CPU)
    assert 50 * 2**20 < peak_bytes(CPU) <= 1.01 * whole_life + 2**20


@pytest.mark.parametrize("status", [None, "Name:\tpython\nState:\tR\n"])
def test_without_proc_the_peak_of_the_process_is_given(monkeypatch, tmp_path, status):
    path = tmp_path / "status"
    if status is not None:
        path.write_text(status)
    monkeypatch.setattr(peak, "_STATUS", path)
    monkeypatch.setattr(peak, "_CLEAR", tmp_path / "missing" / "clear_refs")
    reset_peak(CPU)
    before = peak_bytes(CPU)
    allocate()
    assert peak_bytes(CPU) >= before > 50 * 2**20


def test_the_high_water_mark_is_read_in_kibibytes(monkeypatch, tmp_path):
    (tmp_path / "status").write_text("VmPeak:\t  999999 kB\nVmHWM:\t    1234 kB\nVmRSS:\t     777 kB\n")
    monkeypatch.setattr(peak, "_STATUS", tmp_path / "status")
    assert peak_bytes(CPU) == 1234 * 1024


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_getrusage_counts_in_other_units_on_macos(monkeypatch, tmp_path, platform):
    monkeypatch.setattr(peak, "_STATUS", Path(tmp_path / "missing"))
    monkeypatch.setattr(sys, "platform", platform)
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak_bytes(CPU) >= usage * (1 if platform == "darwin" else 1024)
    assert peak_bytes(CPU) < usage * (2 if platform == "darwin" else 2048)


def test_on_cuda_the_allocator_is_asked(monkeypatch):
    calls: list[tuple[str, torch.device]] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: calls.append(("reset", device)))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: calls.append(("read", device)) or 4321)
    gpu = torch.device("cuda", 1)
    reset_peak(gpu)
    assert peak_bytes(gpu) == 4321
    assert calls == [("reset", gpu), ("read", gpu)]


@pytest.mark.parametrize(("answers", "expected"), [(1, 123 * 2**30), (0, 0)])
def test_on_windows_the_peak_of_the_working_set_is_given(monkeypatch, tmp_path, answers, expected):
    class Kernel32:
        """Fills the structure of psapi.h: two numbers of 32 bits, then eight of 64."""

        class GetCurrentProcess:
            restype = ctypes.c_int

            def __new__(cls) -> int:  # type: ignore[misc]
                return -1

        @staticmethod
        def K32GetProcessMemoryInfo(process: ctypes.c_void_p, counters: object, size: int) -> int:  # noqa: N802
            assert (ctypes.c_int64(process.value or 0).value, size) == (-1, 72)
            if answers:
                address = ctypes.addressof(counters._obj)  # type: ignore[attr-defined]
                ctypes.c_uint64.from_address(address + 8).value = 123 * 2**30
            return answers

    monkeypatch.setattr(peak, "_STATUS", tmp_path / "missing")
    monkeypatch.setattr(peak, "resource", None)
    monkeypatch.setattr(ctypes, "WinDLL", lambda name: Kernel32, raising=False)
    assert peak_bytes(CPU) == expected
