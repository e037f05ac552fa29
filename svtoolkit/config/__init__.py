"""The schema of conf/: one dataclass a configuration node.

A key that stands in no dataclass, or a value of another type, is refused before anything runs. Defaults are those of
conf/, so that a dataclass built in Python is what `svt` would compose. The YAML is what explains the keys to users.
This module imports neither torch nor Hydra, so that `svt --help` stays instant.
"""

from __future__ import annotations

from typing import Any

from svtoolkit.config.commands import (
    AverageConfig,
    EmbedConfig,
    EvaluateConfig,
    PrepareConfig,
    ReportConfig,
    ScoreConfig,
    ValidateConfig,
    VerifyConfig,
)
from svtoolkit.config.required import REQUIRED
from svtoolkit.config.training import (
    AdamWConfig,
    AugmentConfig,
    FeaturesConfig,
    LossConfig,
    MarginScheduleConfig,
    ModelConfig,
    OptimConfig,
    ScheduleConfig,
    SGDConfig,
    TrainConfig,
    TrainDataConfig,
    TrainerConfig,
    ValidationConfig,
)

__all__ = [
    "GROUP_SCHEMAS",
    "REQUIRED",
    "SCHEMAS",
    "AdamWConfig",
    "AugmentConfig",
    "AverageConfig",
    "EmbedConfig",
    "EvaluateConfig",
    "FeaturesConfig",
    "LossConfig",
    "MarginScheduleConfig",
    "ModelConfig",
    "OptimConfig",
    "PrepareConfig",
    "ReportConfig",
    "SGDConfig",
    "ScheduleConfig",
    "ScoreConfig",
    "TrainConfig",
    "TrainDataConfig",
    "TrainerConfig",
    "ValidateConfig",
    "ValidationConfig",
    "VerifyConfig",
]

SCHEMAS: dict[str, type[Any]] = {
    "train": TrainConfig,
    "prepare": PrepareConfig,
    "validate": ValidateConfig,
    "average": AverageConfig,
    "embed": EmbedConfig,
    "score": ScoreConfig,
    "evaluate": EvaluateConfig,
    "report": ReportConfig,
    "verify": VerifyConfig,
}
"""Command -> schema of its configuration."""

GROUP_SCHEMAS: dict[tuple[str, str], type[Any]] = {
    ("optim", "sgd"): SGDConfig,
    ("optim", "adamw"): AdamWConfig,
}
"""(group, option) -> schema, where the options of a group have different keys."""
