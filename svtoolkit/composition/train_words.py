"""Settings as the words of `svt train` that choose them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from svtoolkit.composition.groups import GROUPS, TOLD_BY
from svtoolkit.config import (
    DistillationConfig,
    FeaturesConfig,
    LossConfig,
    MemoryStrategyConfig,
    ModelConfig,
    OptimConfig,
    TrainDataConfig,
)


def words_of_run(
    model: ModelConfig,
    loss: LossConfig,
    *,
    batch_size: int,
    frames: int,
    num_bins: int,
    devices: int,
    ema: bool = False,
    distillation: DistillationConfig | None = None,
) -> list[str]:
    """Network, head, effective batch and sizes; what a run begins with is left out; ``ema``: with a moving average."""
    head = choice("loss", loss)
    larger = {} if distillation is None else _changed(distillation, DistillationConfig())
    return [
        *choice("model", model),
        f"trainer.batch_size={batch_size}",
        *([f"data.crop_frames={frames}"] if frames != TrainDataConfig.crop_frames else []),
        *([f"features.num_bins={num_bins}"] if num_bins != FeaturesConfig.num_bins else []),
        *([f"trainer.devices={devices}"] if devices > 1 else []),
        *(["trainer.ema=0.999"] if ema else []),
        *(head if head != ["loss=aam"] else []),
        *(f"distillation.{key}={_text(value)}" for key, value in larger.items()),
    ]


def words_of_step(memory: MemoryStrategyConfig, precision: str, optim: OptimConfig, micro_batch: int) -> list[str]:
    """What decides about memory and time of a step."""
    return [
        *choice("memory", memory),
        f"trainer.precision={precision}",
        *choice("optim", optim),
        f"trainer.micro_batch={micro_batch}",
    ]


def choice(group: str, settings: Any) -> list[str]:
    """The option of a group, and what differs from what it begins with."""
    name = getattr(settings, TOLD_BY.get(group, "name"))
    changed = _changed(settings, GROUPS[group][name].settings)
    return [f"{group}={name}", *(f"{group}.{key}={_text(value)}" for key, value in changed.items())]


def _changed(settings: Any, begun: Any) -> dict[str, Any]:
    before = asdict(begun)
    return {key: value for key, value in asdict(settings).items() if value != before[key]}


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_text(each)}" for key, each in value.items()) + "}"
    return str(value)
