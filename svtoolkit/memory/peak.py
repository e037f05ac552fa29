"""Peak memory of a stretch of a run: the allocator's on CUDA, the resident set's on the CPU."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

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
    """Highest use since ``reset_peak``, in bytes: tensors on CUDA; on the CPU the whole process, libraries included."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
