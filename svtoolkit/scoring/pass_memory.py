"""Memory of a pass through front end and network: bytes over the seconds of audio in it, and the seconds that fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

GAPS = 1.15
"""What a process grows by, relative to the tensors that are there at once: workspaces of kernels, and gaps."""
BESIDE = 2**27
"""Bytes of it that do not grow with the tensors. Both were measured on the CPU, over networks of five families."""


@dataclass(frozen=True)
class PassMemory:
    """Bytes of the tensors at the peak of a pass in eval mode over one recording of t seconds.

    They are ``held + fixed + per_second t + squared t^2``; ``squared`` is 0 but of attention over time. Several
    recordings of together t seconds need no more.

    Attributes:
        held: weights and buffers, which stay.
    """

    held: float
    fixed: float
    per_second: float
    squared: float = 0.0

    def of(self, seconds: float) -> float:
        """Bytes of the tensors."""
        return self.held + self.fixed + self.per_second * seconds + self.squared * seconds**2

    def seconds_within(self, budget: float) -> float:
        """The longest recording whose pass takes so many bytes of tensors; 0 where there is none."""
        room = budget - self.held - self.fixed
        if room <= 0:
            return 0.0
        return 2 * room / (self.per_second + math.sqrt(self.per_second**2 + 4 * self.squared * room))


def fit_pass(held: float, peaks: dict[float, float]) -> PassMemory:
    """The parabola through the peaks of three passes, a line where it does not bend upwards.

    Args:
        held: of ``PassMemory``.
        peaks: seconds -> bytes of the tensors, weights among them.
    """
    (first, low), (second, middle), (third, high) = sorted(peaks.items())
    slope = (middle - low) / (second - first)
    squared = ((high - middle) / (third - second) - slope) / (third - first)
    if squared * third < 0.25 * slope:  # no attention over time, but a peak that moves to another moment
        slope, squared = max(slope, (high - middle) / (third - second)), 0.0
    per_second = slope - squared * (first + second)
    if per_second < 0:  # the peak moves from what grows in proportion to what grows faster: no parabola, but below one
        per_second, squared = 0.0, max(peak - low for peak in peaks.values()) / (third**2 - first**2)
    fixed = max(peak - per_second * seconds - squared * seconds**2 for seconds, peak in peaks.items()) - held
    return PassMemory(held, max(0.0, fixed), per_second, squared)


def within(budget: float) -> float:
    """Bytes of tensors whose pass takes so many bytes of the machine or the GPU."""
    return max(0.0, (budget - BESIDE) / GAPS)


def in_all(tensors: float) -> float:
    """Bytes of the machine or the GPU that a pass with so many bytes of tensors takes."""
    return tensors * GAPS + BESIDE


def show_bytes(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
