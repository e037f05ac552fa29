"""Predictions that were made before, in the user's cache folder: the same question is answered at once.

The folder is ~/.cache/svtoolkit, or SVT_CACHE; it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch

import svtoolkit
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.config import MemoryPredictionConfig
from svtoolkit.memory.step_report import MemoryReport, Moment
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.memory_prediction import StepMemory, predict_memory
from svtoolkit.planning.pass_prediction import predict_pass
from svtoolkit.planning.teacher import plain_teacher
from svtoolkit.scoring.pass_memory import PassMemory
from svtoolkit.system.atomic import atomic_write

NOT_ASKED = ("budget_gib", "format")
"""Settings of `svt memory` that decide what is shown, not what is predicted."""

MOST_STORED = 500
"""Predictions of a kind, of some 20 kB; the oldest are deleted."""

Answer = TypeVar("Answer")


def predict_or_recall(
    config: MemoryPredictionConfig, progress: Callable[[str], object] = lambda phase: None
) -> StepMemory:
    """As ``predict_memory``; a prediction of the same step by the same code is read instead of made.

    What is measured on a GPU is always measured, and networks of other packages are always predicted: their code may
    have changed.
    """
    path = None if config.device.startswith("cuda") else path_of("memory", config)
    found = recall(path, _read)
    if found is None:
        found = predict_memory(config, progress)
        remember(path, asdict(found))
    return found


def predict_or_recall_pass(description: ModelDescription, precision: str) -> PassMemory:
    """As ``predict_pass``, in the same way."""
    asked = [description.model, asdict(description.features), precision]
    path = _path("pass", description.model.get("name"), asked)
    found = recall(path, lambda stored: PassMemory(**stored))
    if found is None:
        found = predict_pass(description, precision)
        remember(path, asdict(found))
    return found


def path_of(kind: str, config: MemoryPredictionConfig, *further: Any) -> Path | None:
    """Where the answer to a question is kept; None: nowhere.

    Args:
        kind: of answer: a folder.
        config: the question.
        further: what else is asked, in plain data.
    """
    asked = {key: value for key, value in asdict(config).items() if key not in NOT_ASKED}
    asked["distillation"] = plain_teacher(config.distillation)
    return _path(kind, config.model.name, [asked, *further])


def _path(kind: str, network: str | None, asked: list[Any]) -> Path | None:
    if network not in NETWORKS.rows:
        return None
    text = json.dumps([*asked, torch.__version__, _digest_of_code()], sort_keys=True)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("SVT_CACHE") or home / "svtoolkit")
    return folder / kind / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def recall(path: Path | None, read: Callable[[dict[str, Any]], Answer]) -> Answer | None:
    """What was remembered there; None where there is nothing, or nothing that can be read."""
    if path is not None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            return read(json.loads(path.read_text(encoding="utf-8")))
    return None


def remember(path: Path | None, answer: dict[str, Any]) -> None:
    """Keep an answer; of those beside it the oldest are deleted."""
    if path is None:
        return
    with suppress(OSError):  # a home that cannot be written costs the time of a prediction
        with atomic_write(path) as stream:
            json.dump(answer, stream)
        for oldest in sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime)[:-MOST_STORED]:
            oldest.unlink(missing_ok=True)


def _digest_of_code() -> str:
    """Changes with any line of this package, installed or in a source tree."""
    digest = hashlib.sha256()
    for path in sorted(Path(svtoolkit.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(stored: dict[str, Any]) -> StepMemory:
    reports = {
        name: stored[name]
        and MemoryReport(**{**stored[name], "timeline": [Moment(**m) for m in stored[name]["timeline"]]})
        for name in ("whole", "single")
    }
    return StepMemory(**{**stored, **reports})
