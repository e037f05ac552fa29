"""A cross-validation in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def told(done: Sequence[Mapping[str, Any]], pooled: Mapping[str, Any]) -> Iterator[str]:
    """The figures of each training and of all."""
    for one in done:
        rates = ", ".join(f"{name} {100 * one[name]['eer']:.2f} %" for name in pooled)
        yield (
            f"fold {one['fold']}, seed {one['seed']}: EER {rates}; {one['trials']} trials, {one['training_speakers']} "
            f"training speakers, {one['epochs']} epochs in {one['minutes']:.1f} minutes"
        )
    for name, result in pooled.items():
        interval = ""
        if result["eer_interval"]:
            low, high = (100 * bound for bound in result["eer_interval"])
            interval = f" ({low:.2f} to {high:.2f} over speakers)"
        costs = ", ".join(f"minDCF({prior}) {cost:.4f}" for prior, cost in result["min_dcf"].items())
        mean = f"the mean of the trainings is {100 * result['mean_eer']:.2f} %"
        yield f"pooled, {name}: EER {100 * result['eer']:.2f} %{interval}, {costs}, {result['trials']} trials; {mean}"
