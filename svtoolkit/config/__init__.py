"""The schema of conf/: one dataclass a configuration node.

A key that stands in no dataclass, or a value of another type, is refused before anything runs. Defaults are those of
conf/, so that a dataclass built in Python is what `svt` would compose. The YAML is what explains the keys to users.
This module imports neither torch nor Hydra, so that `svt --help` stays instant.
"""

from __future__ import annotations

from typing import Any

from svtoolkit.config.commands import (
    ArchivesConfig,
    AverageConfig,
    ConvertConfig,
    EmbedConfig,
    EvaluateConfig,
    MemoryCommandConfig,
    ModelsConfig,
    PrepareConfig,
    ReportConfig,
    ScoreConfig,
    ShardConfig,
    ValidateConfig,
    VerifyConfig,
)
from svtoolkit.config.required import REQUIRED
from svtoolkit.config.training import (
    AdamW8bitConfig,
    AdamWConfig,
    AugmentConfig,
    FeaturesConfig,
    LossConfig,
    MarginScheduleConfig,
    MemoryConfig,
    ModelConfig,
    OptimConfig,
    ResNetConfig,
    ScheduleConfig,
    SGD8bitConfig,
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
    "AdamW8bitConfig",
    "AdamWConfig",
    "ArchivesConfig",
    "AugmentConfig",
    "AverageConfig",
    "ConvertConfig",
    "EmbedConfig",
    "EvaluateConfig",
    "FeaturesConfig",
    "LossConfig",
    "MarginScheduleConfig",
    "MemoryCommandConfig",
    "MemoryConfig",
    "ModelConfig",
    "ModelsConfig",
    "OptimConfig",
    "PrepareConfig",
    "ReportConfig",
    "ResNetConfig",
    "SGD8bitConfig",
    "SGDConfig",
    "ScheduleConfig",
    "ScoreConfig",
    "ShardConfig",
    "TrainConfig",
    "TrainDataConfig",
    "TrainerConfig",
    "ValidateConfig",
    "ValidationConfig",
    "VerifyConfig",
]

SCHEMAS: dict[str, type[Any]] = {
    "train": TrainConfig,
    "archives": ArchivesConfig,
    "prepare": PrepareConfig,
    "validate": ValidateConfig,
    "convert": ConvertConfig,
    "shard": ShardConfig,
    "average": AverageConfig,
    "embed": EmbedConfig,
    "score": ScoreConfig,
    "evaluate": EvaluateConfig,
    "report": ReportConfig,
    "verify": VerifyConfig,
    "memory": MemoryCommandConfig,
    "models": ModelsConfig,
}
"""Command -> schema of its configuration."""

GROUP_SCHEMAS: dict[tuple[str, str], type[Any]] = {
    ("optim", "sgd"): SGDConfig,
    ("optim", "adamw"): AdamWConfig,
    ("optim", "sgd_8bit"): SGD8bitConfig,
    ("optim", "adamw_8bit"): AdamW8bitConfig,
    **{("model", f"resnet{layers}"): ResNetConfig for layers in (10, 18, 34, 50, 101, 152, 221, 293)},
}
"""(group, option) -> schema, where an option has keys that others of its group lack."""
