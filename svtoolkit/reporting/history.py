"""What the history of a training run says: its quantities as curves, and the run in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.reporting.formatting import percent

Record = Mapping[str, Any]


def series(history: Sequence[Record], kind: str, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """One quantity over the run, in float64, both of shape (points,), x rising.

    A run that was resumed from a checkpoint repeats the records after it; the later record of an x wins, and
    those of the abandoned stretch that were not repeated yet are left out. So are values that are absent, null or
    not finite.

    Args:
        history: records in the order they were written; other kinds and unknown keys are ignored.
        kind: the records to take, ``step`` or ``epoch``.
        x, y: keys of the two quantities.

    Raises:
        UserError: a value that is not a number; names the record and the key.
    """
    points: list[tuple[float, float]] = []
    for position, record in enumerate(history, start=1):
        if record.get("kind") != kind:
            continue
        at, value = _number(record, x, position), _number(record, y, position)
        while points and points[-1][0] >= at:
            points.pop()
        if math.isfinite(at) and math.isfinite(value):
            points.append((at, value))
    pairs = np.array(points, dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def summary(history: Sequence[Record]) -> str:
    """The run in words: last step and epoch, best validation EER, peak memory; empty where none was recorded."""
    steps = np.concatenate([series(history, kind, "step", "step")[0] for kind in ("step", "epoch")])
    epochs, eer = series(history, "epoch", "epoch", "validation_eer")
    _, memory = series(history, "epoch", "epoch", "peak_memory_bytes")
    _, epoch = series(history, "epoch", "epoch", "epoch")
    parts = []
    if len(steps):
        parts.append(f"up to step {steps.max():,.0f}")
    if len(epoch):
        parts.append(f"epoch {epoch.max():,.0f}")
    if len(eer):
        parts.append(f"best validation EER {percent(float(eer.min()))} after epoch {epochs[eer.argmin()]:.0f}")
    if len(memory):
        parts.append(f"peak memory {memory.max() / 2**30:.2f} GiB")
    return ", ".join(parts)


def _number(record: Record, key: str, position: int) -> float:
    value = record.get(key)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UserError(f"training history, record {position}: found {value!r} as {key!r}, expected a number")
    return float(value)
