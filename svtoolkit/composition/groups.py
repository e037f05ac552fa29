"""What a group offers: `optim=adamw` chooses the option adamw of the group optim. Needs neither torch nor Hydra."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from svtoolkit.config import (
    SCHEMAS,
    AdamW8bitConfig,
    AdamWConfig,
    AugmentConfig,
    FeaturesConfig,
    LossConfig,
    MarginScheduleConfig,
    MemoryStrategyConfig,
    ModelConfig,
    ResNetConfig,
    ScheduleConfig,
    SGD8bitConfig,
    SGDConfig,
    TrainDataConfig,
    TrainerConfig,
    ValidationConfig,
)


class Option(NamedTuple):
    """Settings that a choice begins with, and what it is in one line."""

    settings: Any
    help: str = ""


RESNETS = [f"resnet{layers}" for layers in (10, 18, 34, 50, 101, 152, 221, 293)]
OTHER_NETWORKS = """
    revnet_tiny revnet46 revnet57 revnet126 revnet137 revnet140 revnet155 revnet178 revnet197 revnet230 revnet245
    df_revnet66 df_revnet89 df_revnet126 df_revnet149 df_revnet258 df_revnet281 df_revnet354 df_revnet377
    df_resnet56 df_resnet110 df_resnet179 df_resnet233
    gemini_df_resnet60 gemini_df_resnet114 gemini_df_resnet183 gemini_df_resnet237
""".split()

GROUPS: dict[str, Mapping[str, Option]] = {
    "data": {"crops200": Option(TrainDataConfig(), "crops of 2 s at three speeds")},
    "features": {"fbank80": Option(FeaturesConfig(), "80 bins, as WeSpeaker's")},
    "model": {
        **{name: Option(ResNetConfig(name)) for name in RESNETS},
        **{name: Option(ModelConfig(name)) for name in OTHER_NETWORKS},
    },
    "memory": {
        "auto": Option(MemoryStrategyConfig(), "activations are recomputed in reversible networks, stored elsewhere"),
        "store": Option(MemoryStrategyConfig("store"), "autograd stores activations, of a reversible network, too"),
        "reversible": Option(
            MemoryStrategyConfig("reversible"), "activations are recomputed; refused where no stage is reversible"
        ),
    },
    "loss": {
        "aam": Option(LossConfig(), "additive angular margin softmax (ArcFace)"),
        "am": Option(LossConfig("am"), "additive margin softmax (CosFace)"),
        "softmax": Option(LossConfig("softmax", margin=0.0, scale=1.0), "plain softmax over a linear layer with bias"),
    },
    "margin_schedule": {
        "exponential": Option(MarginScheduleConfig(), "WeSpeaker's ramp"),
        "linear": Option(MarginScheduleConfig("linear"), "a straight ramp"),
        "constant": Option(MarginScheduleConfig("constant", start=0.0, end=0.0), "loss.margin from the first step on"),
    },
    "optim": {
        "sgd": Option(SGDConfig(), "SGD with Nesterov momentum"),
        "adamw": Option(AdamWConfig(), "AdamW"),
        "sgd_8bit": Option(SGD8bitConfig(), "SGD, a byte a value of its state"),
        "adamw_8bit": Option(AdamW8bitConfig(), "AdamW, a byte a value of its state"),
    },
    "schedule": {
        "exponential": Option(ScheduleConfig(), "exponential decrease after a linear warm-up"),
        "cosine": Option(ScheduleConfig("cosine"), "half a cosine after a linear warm-up"),
        "one_cycle": Option(
            ScheduleConfig("one_cycle", warmup=0.3, start_factor=0.04, end_factor=2.5e-5), "cosine rise, cosine fall"
        ),
    },
    "augment": {
        "specaug": Option(AugmentConfig(), "dither and SpecAug; noise and reverberation where they are given"),
        "none": Option(
            AugmentConfig(
                dither=0.0,
                spec_probability=0.0,
                time_masks=0,
                time_width=0,
                freq_masks=0,
                freq_width=0,
                probability=0.0,
            ),
            "no random change of the crops",
        ),
    },
    "validation": {
        "held_out": Option(ValidationConfig(), "training speakers held out, scored after each epoch"),
        "none": Option(ValidationConfig(speakers=0, targets_per_speaker=0), "none: the last epochs count"),
    },
    "trainer": {"default": Option(TrainerConfig(), "the training loop")},
}
"""Group -> its options by name."""


def group_classes(command: str) -> dict[str, type[Any]]:
    """Groups that a command composes -> class of the settings that it has by default, in the order of its schema."""
    nodes: dict[str, Any] = {item.name: item.default_factory for item in fields(SCHEMAS[command])}
    return {name: node for name, node in nodes.items() if isinstance(node, type)}


def default_option(group: str, schema: type[Any]) -> str:
    """The option whose settings are those that a schema has where nothing is chosen."""
    return next(name for name, option in GROUPS[group].items() if option.settings == schema())


def by_number(option: str) -> list[tuple[int, str]]:
    """Sorts resnet18 before resnet101."""
    return [(int(part or 0) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", option)]
