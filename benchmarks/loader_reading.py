"""Reading out of files against reading out of shards: what is in the page cache, and what is not."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.page_cache import cached_share, drop_from_cache
from benchmarks.step_time import time_in_turns

FORGOTTEN = 0.05
"""Share of the files that may still be in memory for them to be cold."""


def compare_reading(
    ways: Mapping[str, Callable[[], object]], audio: Mapping[str, Sequence[Path]], crops: int, rounds: int
) -> dict[str, Any]:
    """Milliseconds a crop, warm, and cold if the file system can forget.

    Args:
        ways: "files" and "shards": what reads all crops.
        audio: of each, the files that it reads.
        crops: how many it reads.
        rounds: times that each is measured, in turns.
    """
    warm = time_in_turns(ways, rounds)
    files, shards = warm["files"], warm["shards"]
    record: dict[str, Any] = {
        "warm_ms": {name: round(1000 * timing.median / crops, 4) for name, timing in warm.items()},
        "warm_fastest_ms": {name: round(1000 * timing.fastest / crops, 4) for name, timing in warm.items()},
        "shards_to_files": round(shards.median / files.median, 3),
        "shards_to_files_fastest": round(shards.fastest / files.fastest, 3),
        "shards_to_files_processor": round(shards.processor / files.processor, 3),
    }
    for paths in audio.values():
        drop_from_cache(paths)
    kept = max(map(cached_share, audio.values()))
    if kept > FORGOTTEN:
        return record | {"cold": f"not measured: the system keeps {100 * kept:.0f} % of the files in memory"}
    cold = _time_cold(ways, audio, rounds)
    return record | {
        "cold_ms": {name: round(1000 * seconds / crops, 4) for name, seconds in cold.items()},
        "cold_shards_to_files": round(cold["shards"] / cold["files"], 3),
        "cold": "forgotten by this system; what lies below it (a virtual disk, a network) may still remember",
    }


def _time_cold(
    ways: Mapping[str, Callable[[], object]], audio: Mapping[str, Sequence[Path]], rounds: int
) -> dict[str, float]:
    """Median seconds, each time after the page cache was told to forget the files."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in sorted(ways, reverse=bool(number % 2)):
            drop_from_cache(audio[name])
            begin = time.perf_counter()
            ways[name]()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) for name, taken in seconds.items()}
