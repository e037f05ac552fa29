"""Margin heads over the training speakers, and the schedule of their margin.

Names are looked up when they are first used, so that listing the losses does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svtoolkit.system.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from svtoolkit.losses.centers import SubcenterAAMHead, TopKAAMHead
    from svtoolkit.losses.head import ClassificationHead, Head, HeadOutput
    from svtoolkit.losses.margins import AAMHead, AMHead, SoftmaxHead
    from svtoolkit.losses.pairwise import AngularPrototypical, build_pairwise
    from svtoolkit.losses.registry import LOSSES, build_head
    from svtoolkit.losses.schedule import MarginSchedule
    from svtoolkit.losses.sphereface2 import SphereFace2Head

__getattr__ = lazy_imports(
    __name__,
    {
        "centers": "SubcenterAAMHead TopKAAMHead",
        "head": "ClassificationHead Head HeadOutput",
        "margins": "AAMHead AMHead SoftmaxHead",
        "pairwise": "AngularPrototypical build_pairwise",
        "registry": "LOSSES build_head",
        "schedule": "MarginSchedule",
        "sphereface2": "SphereFace2Head",
    },
)
