"""Margin heads over the training speakers, and the schedule of their margin.

Names are looked up when they are first used, so that listing the losses does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svtoolkit.system.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from svtoolkit.losses.head import ClassificationHead, Head, HeadOutput
    from svtoolkit.losses.margins import AAMHead, AMHead, SoftmaxHead
    from svtoolkit.losses.registry import LOSSES, build_head
    from svtoolkit.losses.schedule import MarginSchedule

__all__ = [
    "LOSSES",
    "AAMHead",
    "AMHead",
    "ClassificationHead",
    "Head",
    "HeadOutput",
    "MarginSchedule",
    "SoftmaxHead",
    "build_head",
]

__getattr__ = lazy_imports(
    __name__,
    {
        "LOSSES": "svtoolkit.losses.registry",
        "AAMHead": "svtoolkit.losses.margins",
        "AMHead": "svtoolkit.losses.margins",
        "ClassificationHead": "svtoolkit.losses.head",
        "Head": "svtoolkit.losses.head",
        "HeadOutput": "svtoolkit.losses.head",
        "MarginSchedule": "svtoolkit.losses.schedule",
        "SoftmaxHead": "svtoolkit.losses.margins",
        "build_head": "svtoolkit.losses.registry",
    },
)
