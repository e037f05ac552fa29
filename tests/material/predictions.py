"""One prediction of memory a configuration, however many tests of a process ask for it."""

from __future__ import annotations

from svtoolkit.config import MemoryPredictionConfig
from svtoolkit.memory.step_report import MemoryReport
from svtoolkit.planning.memory_prediction import StepMemory, predict_memory

_found: dict[tuple[str, bool], StepMemory] = {}


def predict_once(config: MemoryPredictionConfig, *, growth: bool = True) -> StepMemory:
    """``predict_memory``, of which the result depends on the arguments alone; nothing may change it."""
    key = (repr(config), growth)
    if key not in _found:
        _found[key] = predict_memory(config, growth=growth)
    return _found[key]


def report_once(config: MemoryPredictionConfig) -> MemoryReport:
    """Of the step alone, which takes half the time."""
    return (_found.get((repr(config), True)) or predict_once(config, growth=False)).whole
