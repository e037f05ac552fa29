"""A cross-validation in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def name_of(fold: int, seed: int | None) -> str:
    """Of a training; without a seed, of the ensemble of a fold."""
    return f"fold {fold}, {'ensemble' if seed is None else f'seed {seed}'}"


def told_of_trainings(done: Iterable[Mapping[str, Any]], systems: Iterable[str]) -> Iterator[str]:
    """The figures of each training."""
    names = list(systems)
    for one in done:
        rates = ", ".join(f"{name} {100 * one[name]['eer']:.2f} %" for name in names)
        yield (
            f"{name_of(one['fold'], one['seed'])}: EER {rates}; {one['trials']} trials, {one['training_speakers']} "
            f"training speakers, {one['epochs']} epochs in {one['minutes']:.1f} minutes"
        )


def told_of_all(pooled: Mapping[str, Mapping[str, Any]], what: str = "pooled") -> Iterator[str]:
    """The figures of all trainings together, or of all ensembles."""
    each = "trainings" if what == "pooled" else "folds"
    for name, result in pooled.items():
        interval = ""
        if result["eer_interval"]:
            low, high = (100 * bound for bound in result["eer_interval"])
            interval = f" ({low:.2f} to {high:.2f} over speakers)"
        costs = ", ".join(f"minDCF({prior}) {cost:.4f}" for prior, cost in result["min_dcf"].items())
        mean = f"the mean of the {each} is {100 * result['mean_eer']:.2f} %"
        yield f"{what}, {name}: EER {100 * result['eer']:.2f} %{interval}, {costs}, {result['trials']} trials; {mean}"
