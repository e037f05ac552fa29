"""Everything a run needs to resume as if it had never stopped, as plain data."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from svtoolkit.errors import UserError
from svtoolkit.training.meters import Meter
from svtoolkit.training.step import OptimizerStep


def collect_state(step: OptimizerStep, meters: dict[str, Meter], **facts: Any) -> dict[str, Any]:
    """Network, head, optimizer, scaler, meters, random generators, and the facts given (numbers and strings).

    All processes call this, and the first one has the state of the whole head.
    """
    return {
        "network": step.network.state_dict(),
        "head": step.head.gather_head_state(),
        "optimizer": step.head.gather_optimizer_state(step.optimizer),
        "scaler": step.scaler.state_dict(),
        "meters": {name: asdict(meter) for name, meter in meters.items()},
        "random": _random_state(),
        "facts": facts,
    }


def restore_state(state: dict[str, Any], step: OptimizerStep, meters: dict[str, Meter]) -> dict[str, Any]:
    """The inverse of ``collect_state``; returns its facts.

    Raises:
        UserError: the state is of another network, head or optimizer.
    """
    try:
        step.network.load_state_dict(state["network"])
        step.head.load_state_dict(state["head"])
        step.head.load_optimizer_state(step.optimizer, state["optimizer"])
        step.scaler.load_state_dict(state["scaler"])
    except (RuntimeError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"the saved state does not fit this run: {reason}; use another exp_dir") from error
    for name, meter in meters.items():
        for key, value in state["meters"][name].items():
            setattr(meter, key, value)
    _restore_random_state(state["random"])
    return state["facts"]


def _random_state() -> dict[str, Any]:
    numpy = np.random.get_state(legacy=False)
    keys, position = numpy["state"]["key"], numpy["state"]["pos"]
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": list(random.getstate()[1]),
        "python_gauss": random.getstate()[2],
        "numpy": [
            str(numpy["bit_generator"]), torch.from_numpy(keys.astype(np.int64)), int(position),
            int(numpy["has_gauss"]), float(numpy["gauss"]),
        ],
    }  # fmt: skip


def _restore_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    random.setstate((3, tuple(state["python"]), state.get("python_gauss")))
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
