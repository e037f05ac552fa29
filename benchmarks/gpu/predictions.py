"""What the ledger predicts of the steps that a GPU measures, made before on any machine.

    python -m benchmarks.gpu --predict

A step on fake tensors takes seconds, which a GPU would wait for.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.gpu.subjects import NETWORKS, combinations, key_of, strategy_config
from benchmarks.machine import describe_machine
from benchmarks.training_step import BINS, CLASSES, FRAMES, OPTIMIZERS
from svtoolkit.config import MemoryPredictionConfig, ModelConfig
from svtoolkit.errors import UserError
from svtoolkit.planning.memory_prediction import StepMemory, predict_memory
from svtoolkit.system.atomic import atomic_write

FILE = Path(__file__).resolve().parents[1] / "results" / "gpu" / "predicted.json"
PRECISIONS = ("fp32", "fp16")
PROBE = 16
"""Utterances of the predicted step; its phases grow in proportion with more."""


@dataclass(frozen=True)
class Subject:
    """A step whose memory is predicted."""

    network: str
    strategy: str
    optimizer: str
    precision: str

    @property
    def key(self) -> str:
        return key_of(self.network, self.strategy, self.optimizer, self.precision)


def subjects() -> list[Subject]:
    """Of the parts memory and batches; 8-bit state where activations are recomputed."""
    found = [Subject(network, strategy, "sgd", precision) for network, strategy, precision in
             combinations(NETWORKS, PRECISIONS)]  # fmt: skip
    return found + [Subject(each.network, each.strategy, "sgd_8bit", each.precision) for each in found
                    if each.strategy == "reversible"]  # fmt: skip


def predict(subject: Subject) -> dict[str, Any]:
    """Peaks of the phases of a step on one utterance and on ``PROBE``; or why there are none."""
    config = MemoryPredictionConfig(
        batch_size=PROBE,
        frames=FRAMES,
        num_bins=BINS,
        num_classes=CLASSES,
        precision=subject.precision,
        device="cpu",
        model=ModelConfig(subject.network),
        memory=strategy_config(subject.strategy, subject.precision),
        optim=OPTIMIZERS[subject.optimizer](),
    )
    try:
        memory = predict_memory(config)
    except UserError as reason:
        return {"left_out": str(reason)}
    assert memory.single is not None, "a probe of more than one"
    return {"single": memory.single.phase_peaks, "whole": memory.whole.phase_peaks}


def predict_all(path: Path, wanted: Iterable[Subject]) -> None:
    """Add to the file what it lacks, one after the other."""
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"lines": {}}
    document |= {"machine": describe_machine("torch"), "probe": PROBE}
    for subject in wanted:
        if subject.key in document["lines"]:
            continue
        document["lines"][subject.key] = predict(subject)
        print(subject.key, file=sys.stderr)
        with atomic_write(path) as stream:
            json.dump(document, stream, indent=1)
            stream.write("\n")


@functools.cache
def _lines(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def line_of(network: str, strategy: str, optimizer: str, precision: str) -> StepMemory | None:
    """What was predicted of a step of any batch; None: nothing was."""
    found = _lines(FILE)
    line = found.get("lines", {}).get(Subject(network, strategy, optimizer, precision).key, {})
    if "single" not in line:
        return None
    reports = [cast(Any, SimpleNamespace(phase_peaks=line[size])) for size in ("whole", "single")]
    return StepMemory(found["probe"], strategy, *reports)
