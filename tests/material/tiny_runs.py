"""Runs that take a second: their configuration, and what is compared of two of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from svtoolkit import composition
from svtoolkit.config import (
    AdamW8bitConfig,
    AdamWConfig,
    AugmentConfig,
    FeaturesConfig,
    LossConfig,
    MarginScheduleConfig,
    Muon8bitConfig,
    MuonConfig,
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
from svtoolkit.runs.full_state import load_latest_state
from svtoolkit.runs.history import History

if TYPE_CHECKING:
    import pytest

TIME_LIKE = ("seconds", "data_wait", "peak_memory_bytes")
"""What differs from run to run in a history."""

OPTIMIZERS: dict[str, Callable[[], OptimConfig]] = {
    "sgd": partial(SGDConfig, lr=0.05),
    "adamw": partial(AdamWConfig, lr=0.005),
    "muon": partial(MuonConfig, lr=0.01, adamw_lr=0.005),
    "sgd_8bit": partial(SGD8bitConfig, lr=0.05, block_size=48, min_8bit_size=100),
    "adamw_8bit": partial(AdamW8bitConfig, lr=0.005, block_size=48, min_8bit_size=100),
    "muon_8bit": partial(Muon8bitConfig, lr=0.01, adamw_lr=0.005, block_size=48, min_8bit_size=100),
}
"""Of tiny_config; most weights of so small a network would keep 32-bit state."""


def tiny_config(data: Path, exp_dir: Path, optim: str = "sgd", **changes: Any) -> TrainConfig:
    """A network of some 6000 weights on 40-frame crops; 13 steps an epoch on the corpus of ``speech_material``.

    Args:
        changes: by dotted key, dots written as two underscores: ``trainer__epochs=1``.
    """
    config = TrainConfig(
        exp_dir=str(exp_dir),
        seed=7,
        data=TrainDataConfig(train=str(data), crop_frames=40, min_seconds=0.1, num_workers=0),
        features=FeaturesConfig(num_bins=24),
        model=ResNetConfig(name="resnet10", embedding_dim=16, base_width=4),
        loss=LossConfig(name="aam", margin=0.2, scale=16.0),
        margin_schedule=MarginScheduleConfig(name="linear", start=0.25, end=0.75),
        optim=OPTIMIZERS[optim](),
        schedule=ScheduleConfig(name="exponential", warmup=0.25, start_factor=0.02, end_factor=0.02),
        augment=AugmentConfig(spec_probability=0.6, time_width=8, freq_width=4),
        validation=ValidationConfig(speakers=2, targets_per_speaker=6),
        trainer=TrainerConfig(epochs=2, batch_size=8, device="cpu", threads=1, log_steps=1, checkpoint_steps=3),
    )
    for key, value in changes.items():
        *nodes, last = key.split("__")
        node: Any = config
        for name in nodes:
            node = getattr(node, name)
        assert hasattr(node, last), key
        setattr(node, last, value)
    return config


def command_words(config: TrainConfig) -> list[str]:
    """The words after `svt train` that compose this configuration."""
    words = [f"model={config.model.name}", f"optim={config.optim.name}", f"loss={config.loss.name}"]
    words += [f"schedule={config.schedule.name}", f"margin_schedule={config.margin_schedule.name}"]
    composed = _composed(*words, "data.train=none", "exp_dir=none")
    return words + list(_assignments(config, composed))


@cache
def _composed(*words: str) -> TrainConfig:
    return composition.load("train", list(words))


def _assignments(node: Any, composed: Any, prefix: str = "") -> Iterator[str]:
    """Of what is not so already."""
    for item in fields(node):
        value, other = getattr(node, item.name), getattr(composed, item.name)
        if is_dataclass(value):
            yield from _assignments(value, other, f"{prefix}{item.name}.")
        elif value != other:
            shown = value if isinstance(value, str) else json.dumps(value)
            yield f"{prefix}{item.name}={shown}"


def read_run(exp_dir: Path) -> dict[str, Any]:
    """All that two equal runs have in common: state but for times and the strategy, epoch weights, history."""
    found = load_latest_state(exp_dir / "checkpoints")
    assert found is not None
    step, state = found
    state["facts"].pop("seconds")
    state["facts"].pop("memory")
    for meter in state["meters"].values():
        meter.pop("seconds")
        meter.pop("waiting")
    weights = {path.name: path.read_bytes() for path in (exp_dir / "checkpoints").glob("epoch-*")}
    return {"step": step, "state": state, "weights": weights, "history": read_records(exp_dir)}


def read_records(exp_dir: Path) -> list[dict[str, Any]]:
    """logs/history.jsonl without what differs from run to run."""
    lines = (exp_dir / "logs" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [{key: value for key, value in record.items() if key not in TIME_LIKE} for record in records]


def assert_same_run(left: Path, right: Path) -> None:
    """Bit for bit the same result, however often either was stopped."""
    ours, theirs = read_run(left), read_run(right)
    assert ours["history"] == theirs["history"]
    assert ours["weights"].keys() == theirs["weights"].keys()
    assert differences(ours, theirs) == []


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two nests of plain data and tensors are not the same, bit for bit."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        same = left.shape == right.shape and left.dtype == right.dtype and _bits(left) == _bits(right)
        return [] if same else [path]
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = sorted(left.keys() | right.keys(), key=str)
        return [
            found
            for key in keys
            for found in (
                differences(left[key], right[key], f"{path}/{key}")
                if key in left and key in right
                else [f"{path}/{key}: only once"]
            )
        ]
    if isinstance(left, Sequence) and isinstance(right, Sequence) and not isinstance(left, str | bytes):
        if len(left) != len(right):
            return [f"{path}: {len(left)} and {len(right)} items"]
        return [
            found
            for position, pair in enumerate(zip(left, right, strict=True))
            for found in differences(*pair, f"{path}/{position}")
        ]
    return [] if left == right else [f"{path}: {left!r} and {right!r}"]


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()


def files_of(folder: Path) -> dict[str, bytes]:
    """Relative path -> content of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fail_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Whatever happens after a step: an error that nobody foresaw."""
    add = History.add

    def fail(history: History, record: dict[str, Any]) -> None:
        add(history, record)
        if record["step"] == step:
            raise RuntimeError("the power is gone")

    monkeypatch.setattr(History, "add", fail)
