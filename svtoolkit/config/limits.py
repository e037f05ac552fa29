"""How large or small a number may be: beyond these limits a command would fill the memory, stand still or crash.

They are no advice: what is within them may still be too much for a machine.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from svtoolkit.errors import UserError

MOST_PROCESSES = max(64, 4 * (os.cpu_count() or 1))
"""Threads or processes of one kind: more than this the system may refuse to start, and they never help."""

LARGEST_SEED = 2**32 - 1
"""NumPy's legacy generator takes no larger one."""


class Limit(NamedTuple):
    """Largest and smallest value of a setting, or of each item of a list; None: others check that end."""

    most: float
    least: float | None = None


_SAMPLE_RATE, _BINS, _BATCH = Limit(384_000), Limit(1024), Limit(1_000_000)
_PROCESSES = Limit(MOST_PROCESSES)

LIMITS: dict[str, Limit] = {
    "seed": Limit(LARGEST_SEED, 0),
    "seeds": Limit(LARGEST_SEED, 0),
    "fold_seed": Limit(LARGEST_SEED, 0),
    "jobs": _PROCESSES,
    "threads": _PROCESSES,
    "num_workers": _PROCESSES,
    "batch_size": _BATCH,
    "effective_batch": _BATCH,
    "gpus": Limit(65_536),
    "sample_rate": _SAMPLE_RATE,
    "num_bins": _BINS,
    "frames": Limit(100_000),
    "num_classes": Limit(1e9),
    "devices": Limit(65_536),
    "resamples": Limit(1_000_000),
    "speakers": Limit(100_000),
    "utterances_per_speaker": Limit(100_000),
    "crops": Limit(1000),
    "crop_seconds": Limit(86_400),
    "data.crop_frames": Limit(30_000),
    "data.speeds": Limit(10, 0.1),
    "data.warps": Limit(2, 0.5),
    "data.num_workers": _PROCESSES,
    "data.cache_gib": Limit(1e9),
    "features.sample_rate": _SAMPLE_RATE,
    "features.num_bins": _BINS,
    "features.frame_length_ms": Limit(1000),
    "features.frame_shift_ms": Limit(1000),
    "features.pad_right": Limit(384_000, 0),
    "model.embedding_dim": Limit(65_536),
    "model.base_width": Limit(1024),
    "model.map_channels": Limit(65_536),
    "augment.dither": Limit(32_768),
    "augment.time_masks": Limit(100),
    "augment.time_width": Limit(100_000),
    "augment.freq_masks": Limit(100),
    "augment.freq_width": Limit(100_000),
    "augment.babble_talkers": Limit(100),
    "trainer.epochs": Limit(1_000_000),
    "trainer.batch_size": _BATCH,
    "trainer.max_batch_size": _BATCH,
    "trainer.threads": _PROCESSES,
    "trainer.devices": _PROCESSES,
}
"""Dotted key -> its limits; a key of several commands has the same in all."""


def check_limits(settings: Any) -> None:
    """Refuse numbers of a configuration that are beyond their limits, NaN or infinite.

    Args:
        settings: a dataclass of a command, with its groups.

    Raises:
        UserError: names the key, what was found and what is expected.
    """
    for key, value in _numbers(settings):
        if problem := explain_excess(key, value):
            raise UserError(f"{key} is {value}, {problem}")


def explain_excess(key: str, value: Any) -> str | None:
    """What is expected of the number of a dotted key, ``expected ...``; None where it is within its limits."""
    items = value if isinstance(value, list | tuple) else [value]
    items = [item for item in items if isinstance(item, int | float) and not isinstance(item, bool)]
    if not all(math.isfinite(item) for item in items if isinstance(item, float)):
        return "expected finite numbers" if isinstance(value, list | tuple) else "expected a finite number"
    limit = LIMITS.get(key)
    if limit is None or all(item <= limit.most and (limit.least is None or item >= limit.least) for item in items):
        return None
    most = f"{limit.most:.15g}"
    one = "numbers" if isinstance(value, list | tuple) else "a number"
    return f"expected {most} or less" if limit.least is None else f"expected {one} from {limit.least:g} to {most}"


def _numbers(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of all settings that are no group."""
    for item in fields(settings):
        value = getattr(settings, item.name)
        if is_dataclass(value):
            yield from _numbers(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", value
