"""Optimizers by name, with 32-bit or 8-bit state, and learning-rate schedules counted in optimizer steps.

Names are looked up when they are first used, so that listing the optimizers does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svtoolkit.system.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from svtoolkit.optim.builders import build_optimizer, exempt_from_decay, leave_to_adamw
    from svtoolkit.optim.by_import_path import settings_of
    from svtoolkit.optim.eight_bit import AdamW8bit, SGD8bit
    from svtoolkit.optim.muon import Muon
    from svtoolkit.optim.muon_8bit import Muon8bit
    from svtoolkit.optim.registry import OPTIMIZERS
    from svtoolkit.optim.schedules import LearningRateSchedule
    from svtoolkit.optim.weight_average import WeightAverage

__getattr__ = lazy_imports(
    __name__,
    {
        "builders": "build_optimizer exempt_from_decay leave_to_adamw",
        "by_import_path": "settings_of",
        "eight_bit": "AdamW8bit SGD8bit",
        "muon": "Muon",
        "muon_8bit": "Muon8bit",
        "registry": "OPTIMIZERS",
        "schedules": "LearningRateSchedule",
        "weight_average": "WeightAverage",
    },
)
