"""CUDA's caching allocator: its peak, a cap on it, and what no longer fits. On a CPU there is none to ask."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from benchmarks.step_time import synchronizer
from svtoolkit.device import is_out_of_memory


def reported_peak(run: Callable[[], object], device: torch.device) -> int | None:
    """Bytes that the allocator had handed out at most while something ran; None: the GPU was too small for it, or
    there is none.
    """
    release(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    fitted = runs(run, device)
    return torch.cuda.max_memory_allocated(device) if fitted and device.type == "cuda" else None


def runs(run: Callable[[], object], device: torch.device) -> bool:
    """Whether something runs without running out of memory; what it leaves behind is given back where it does not."""
    try:
        run()
        synchronizer(device)()
        return True
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        # Its traceback holds tensors: they can go only after it.
    release(device)
    return False


def release(device: torch.device) -> None:
    """Give cached memory back to the GPU."""
    gc.collect()
    synchronizer(device)()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def capped(cap_bytes: float, device: torch.device) -> Iterator[None]:
    """The allocator behaves as if the GPU had no more memory than this."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def largest_batch(fits: Callable[[int], bool], guess: int) -> int:
    """The largest size that fits, by bisection from a guess; 0: not even 1.

    Args:
        fits: true up to the size that is sought, false above.
        guess: the nearer, the fewer sizes are tried.
    """
    low, high = 0, 0  # fits and does not; 0: not known
    size, stride = max(1, guess), max(1, guess // 32)
    while high == 0 or high - low > 1:
        if fits(size):
            low = size
        else:
            high = size
        if high == 0:
            size, stride = size + stride, 2 * stride
        elif low == 0:
            size, stride = max(1, size - stride), 2 * stride
        else:
            size = (low + high) // 2
    return low
