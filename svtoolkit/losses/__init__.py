"""Margin heads over the training speakers, and the schedule of their margin."""

from __future__ import annotations

from svtoolkit.losses.head import ClassificationHead, Head, HeadOutput
from svtoolkit.losses.margins import AAMHead, AMHead, SoftmaxHead, build_head
from svtoolkit.losses.schedule import MarginSchedule

__all__ = [
    "AAMHead",
    "AMHead",
    "ClassificationHead",
    "Head",
    "HeadOutput",
    "MarginSchedule",
    "SoftmaxHead",
    "build_head",
]
