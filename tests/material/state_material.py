"""A small full state of a run, and equality to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def a_state(seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "network": {"weight": torch.randn(3, 4, generator=generator), "counter": torch.tensor(7)},
        "optimizer": {"state": {0: {"step": 3}}, "param_groups": [{"lr": 0.1, "params": [0], "betas": (0.9, 0.99)}]},
        "facts": {"finished_steps": seed, "seconds": 1.5, "name": "a run", "nothing": None, "yes": True},
    }


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def same(first: Any, second: Any) -> bool:
    """Equal to the last bit, NaN and -0.0 included."""
    if isinstance(first, torch.Tensor):
        return (first.dtype, first.shape, bits(first)) == (second.dtype, second.shape, bits(second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return type(first) is type(second) and len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and repr(first) == repr(second)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
