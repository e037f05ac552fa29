"""The predicted peak of a step beside the measured one, told once."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from svtoolkit.memory.peak import peak_bytes
from svtoolkit.planning.automatic import ExpectedPeak

log = logging.getLogger(__name__)

STEPS = 3
"""After which every kind of memory was in use: the optimizer's state is there from the second on."""

TOLERATED = 0.1
GIB = 2**30


class PeakCheck:
    """Compares after the first steps of a process.

    On a GPU alone, where torch's allocator knows its peak at no cost. On a CPU the ledger would slow the steps down,
    and the memory of a process holds whatever else it has loaded.

    Args:
        expected: of a step; None: nothing is told.
        measure: device -> bytes at its peak.
    """

    def __init__(
        self, expected: ExpectedPeak | None, measure: Callable[[torch.device], int] = peak_bytes, steps: int = STEPS
    ) -> None:
        self._expected, self._measure, self._left = expected, measure, steps

    def look(self, device: torch.device) -> None:
        """Called after each step."""
        self._left -= 1
        if self._expected is None or self._left != 0:
            return
        measured = self._measure(device)
        tensors, workspace = self._expected
        told = "peak memory %.2f GiB, predicted %.2f to %.2f"
        shown = measured / GIB, tensors / GIB, (tensors + workspace) / GIB
        if (1 - TOLERATED) * tensors <= measured <= (1 + TOLERATED) * (tensors + workspace):
            log.info(told, *shown)
        else:
            log.warning(f"{told}: more than a tenth off, so what is predicted to fit may not, or more may", *shown)
