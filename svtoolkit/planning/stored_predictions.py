"""Predictions of memory that were made before, in the user's cache folder: the same question is answered at once.

The folder is ~/.cache/svtoolkit, or SVT_CACHE; it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
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
from svtoolkit.scoring.pass_memory import PassMemory
from svtoolkit.system.atomic import atomic_write

Prediction = TypeVar("Prediction", StepMemory, PassMemory)

NOT_ASKED = ("budget_gib", "format")
"""Settings of `svt memory` that decide what is shown, not what is predicted."""

MOST_STORED = 500
"""Predictions, of some 20 kB; the oldest are deleted."""


def predict_or_recall(
    config: MemoryPredictionConfig, progress: Callable[[str], object] = lambda phase: None
) -> StepMemory:
    """As ``predict_memory``; a prediction of the same step by the same code is read instead of made.

    What is measured on a GPU is always measured, and networks of other packages are always predicted: their code may
    have changed.
    """
    if config.device.startswith("cuda") or config.model.name not in NETWORKS.rows:
        return predict_memory(config, progress)
    asked = {key: value for key, value in asdict(config).items() if key not in NOT_ASKED}
    return _recall("memory", asked, lambda: predict_memory(config, progress), _read)


def predict_or_recall_pass(description: ModelDescription, precision: str) -> PassMemory:
    """As ``predict_pass``, in the same way."""
    if description.model.get("name") not in NETWORKS.rows:
        return predict_pass(description, precision)
    asked = {"model": description.model, "features": asdict(description.features), "precision": precision}
    return _recall("pass", asked, lambda: predict_pass(description, precision), lambda found: PassMemory(**found))


def _recall(
    kind: str, asked: Mapping[str, object], make: Callable[[], Prediction], read: Callable[[dict[str, Any]], Prediction]
) -> Prediction:
    """What is stored as the answer to a question, or is made, and stored."""
    digest = hashlib.sha256(json.dumps([asked, torch.__version__, _digest_of_code()], sort_keys=True).encode())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(os.environ.get("SVT_CACHE") or home / "svtoolkit") / kind / f"{digest.hexdigest()[:32]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        return read(json.loads(path.read_text(encoding="utf-8")))
    prediction = make()
    with suppress(OSError):  # a home that cannot be written costs the time of a prediction
        with atomic_write(path) as stream:
            json.dump(asdict(prediction), stream)
        for oldest in sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime)[:-MOST_STORED]:
            oldest.unlink(missing_ok=True)
    return prediction


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
