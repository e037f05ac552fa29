"""One prediction of memory a configuration, however many tests of a process ask for it."""

from __future__ import annotations

from svtoolkit.config import MemoryPredictionConfig
from svtoolkit.planning.memory_prediction import StepMemory, predict_memory

_found: dict[str, StepMemory] = {}


def predict_once(config: MemoryPredictionConfig) -> StepMemory:
    """``predict_memory``, of which the result depends on the configuration alone; nothing may change it."""
    key = repr(config)
    if key not in _found:
        _found[key] = predict_memory(config)
    return _found[key]
