"""A larger network to learn from, and runs that learn from it."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_runs import tiny_config

from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.config import DistillationConfig, FeaturesConfig
from svtoolkit.models import build_model


def larger(folder: Path, *, embedding_dim: int = 16, **features) -> Path:
    """A released network with random weights that is not the one that learns."""
    torch.manual_seed(5)
    front_end = FeaturesConfig(**{"num_bins": 24, **features})
    sizes = {"name": "resnet10", "num_bins": front_end.num_bins, "embedding_dim": embedding_dim, "base_width": 8}
    return write_released(folder, build_model(**sizes).state_dict(), ModelDescription(sizes, front_end))


def learning_from(model: Path, speech, exp_dir, weight: float = 2.0, **changes):
    settings = DistillationConfig(model=str(model), weight=weight)
    return tiny_config(speech, exp_dir, distillation=settings, validation__speakers=0, **changes)
