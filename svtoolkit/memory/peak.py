"""Peak memory of a stretch of a run: the allocator's on CUDA, the resident set's on the CPU."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import torch

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: torch.device) -> None:
    """Begin a new stretch. Where the system cannot forget a peak, the process's own goes on counting."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        _CLEAR.write_text("5")  # Linux: resets the high-water mark of the resident set
    except OSError:
        return


def peak_bytes(device: torch.device) -> int:
    """Highest use since ``reset_peak``, in bytes: tensors on CUDA; else the whole process, libraries included."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    if resource is None:
        return _peak_working_set(ctypes.WinDLL("kernel32"))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class _MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of psapi.h."""

    _fields_ = (
        ("cb", ctypes.c_uint32),
        ("PageFaultCount", ctypes.c_uint32),
        ("PeakWorkingSetSize", ctypes.c_size_t),
        ("WorkingSetSize", ctypes.c_size_t),
        ("QuotaPeakPagedPoolUsage", ctypes.c_size_t),
        ("QuotaPagedPoolUsage", ctypes.c_size_t),
        ("QuotaPeakNonPagedPoolUsage", ctypes.c_size_t),
        ("QuotaNonPagedPoolUsage", ctypes.c_size_t),
        ("PagefileUsage", ctypes.c_size_t),
        ("PeakPagefileUsage", ctypes.c_size_t),
    )


def _peak_working_set(kernel32: Any) -> int:
    """The resident set of Windows; 0 where it does not tell."""
    counters = _MemoryCounters(cb=ctypes.sizeof(_MemoryCounters))
    kernel32.GetCurrentProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(kernel32.GetCurrentProcess())
    if not kernel32.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.cb):
        return 0
    return int(counters.PeakWorkingSetSize)
