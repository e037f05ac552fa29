"""The tables of benchmarks.hybrid."""

from __future__ import annotations

from benchmarks.hybrid import format_tables


def test_memory_time_and_error_rates_side_by_side():
    costs = [
        {"network": "a", "gib_per_utterance": {"store": 0.5, "reversible": 0.25}, "seconds": None},
        {
            "network": "b",
            "gib_per_utterance": {"store": 0.5, "reversible": 0.25, "hybrid": 0.125},
            "seconds": {"store": 2.0, "reversible": 2.5, "hybrid": 3.0},
        },
    ]
    runs = [{"seed": 1, "strategy": "hybrid", "loss": 1.5, "eer": 20.0, "trials": 9}]
    lines = format_tables(costs, runs).splitlines()
    assert lines[2:4] == [
        "| a | 0.5000 | 0.2500 | - |",
        "| b | 0.5000 (1.00) | 0.2500 (1.25) | 0.1250 (1.50) |",
    ]
    assert lines[-1] == "| 1 | hybrid | 1.500 | 20.00 |"
