"""Everything a run needs to resume as if it had never stopped, as plain data."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from svtoolkit.errors import UserError
from svtoolkit.optim import Muon, WeightAverage
from svtoolkit.training.meters import Meter
from svtoolkit.training.step import OptimizerStep

PARTS = ("network", "head", "pairwise", "optimizer", "scaler", "meters", "random", "facts")

EMA = "ema"
"""Part of the state of a run that keeps a moving average of its weights."""

FACTS = {
    "finished_steps": int, "seconds": float, "nonfinite_steps": int, "fingerprint": str, "micro_batch": int
}  # fmt: skip
"""Of the facts, what a run resumes by."""

WORDS = {int: "a whole number of 0 or more", float: "a number of 0 or more", str: "text"}

LARGEST = 2**53

MOMENTS = {"momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
"""State of torch's optimizers that has the shape of its parameter."""


class UnfitStateError(UserError):
    """A state that can be read and is none of this run."""


def collect_state(
    step: OptimizerStep, meters: dict[str, Meter], average: WeightAverage | None = None, **facts: Any
) -> dict[str, Any]:
    """Network, head, optimizer, scaler, meters, random generators, and the facts given (numbers and strings).

    All processes call this, and the first one has the state of the whole head.
    """
    return {
        "network": step.network.state_dict(),
        "head": step.head.gather_head_state(),
        "pairwise": {} if step.pairwise is None else step.pairwise.state_dict(),
        "optimizer": step.head.gather_optimizer_state(step.optimizer),
        "scaler": step.scaler.state_dict(),
        "meters": {name: asdict(meter) for name, meter in meters.items()},
        "random": _random_state(),
        "facts": facts,
        **({} if average is None else {EMA: average.state_dict()}),
    }


def check_state(state: Any) -> None:
    """Refuse what has not the parts of a state of a run; whether they fit a run, ``restore_state`` finds out.

    Raises:
        UnfitStateError: names the part.
    """
    if not isinstance(state, dict):
        raise UnfitStateError(f"found a {type(state).__name__}, expected the parts of a run")
    state.setdefault("pairwise", {})  # which states of older versions have not
    for name in PARTS:
        if not isinstance(state.get(name), dict):
            raise UnfitStateError(f"its part {name!r} is {_kind(state, name)}, expected a mapping")
    for name in ("network", "head", "pairwise"):
        if not all(isinstance(tensor, torch.Tensor) for tensor in state[name].values()):
            raise UnfitStateError(f"its part {name!r} holds something else than tensors")
    weight = state["head"].get("weight")
    if weight is None or weight.ndim not in (2, 3):
        raise UnfitStateError("its part 'head' has no 'weight' of shape (classes, embedding_dim)")
    if EMA in state and not (isinstance(state[EMA], dict) and isinstance(state[EMA].get("weights"), dict)):
        raise UnfitStateError(f"its part {EMA!r} is {_kind(state, EMA)}, expected a mapping with weights")
    for name, kind in FACTS.items():
        value = state["facts"].get(name)
        is_right = isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool)
        if not is_right or (not isinstance(value, str) and not 0 <= value < LARGEST):
            raise UnfitStateError(f"its fact {name!r} is {_kind(state['facts'], name)}, expected {WORDS[kind]}")
    for name, sums in state["meters"].items():
        numbers = sums.values() if isinstance(sums, dict) else [None]
        if not all(isinstance(number, int | float) for number in numbers):
            raise UnfitStateError(f"its meter {name!r} holds something else than numbers")


def restore_state(
    state: dict[str, Any], step: OptimizerStep, meters: dict[str, Meter], average: WeightAverage | None = None
) -> dict[str, Any]:
    """The inverse of ``collect_state``; returns its facts.

    A state without an average is that of a stage that begins with other weights: so does the average.

    Raises:
        UnfitStateError: the state is of another network, head or optimizer.
    """
    try:
        step.network.load_state_dict(state["network"])
        step.head.load_state_dict(state["head"])
        (step.pairwise or torch.nn.Module()).load_state_dict(state["pairwise"])
        before = [dict(group) for group in step.optimizer.param_groups]
        step.head.load_optimizer_state(step.optimizer, state["optimizer"])
        _check_optimizer(step.optimizer, before)
        step.scaler.load_state_dict(state["scaler"])
        if average is not None and EMA in state:
            average.load_state_dict(state[EMA])
        elif average is not None:
            average.begin(step.network)
        restored = {name: Meter(**state["meters"][name]) for name in meters}
        _restore_random_state(state["random"])
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of a state that someone else made, torch may trip over anything
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UnfitStateError(f"the saved state does not fit this run: {reason}; use another exp_dir") from error
    for name, meter in restored.items():
        meters[name].clear()
        meters[name].add(meter)
    return state["facts"]


def _check_optimizer(optimizer: torch.optim.Optimizer, before: list[dict[str, Any]]) -> None:
    """What torch takes as it comes: numbers of another type, and moments of another shape than their parameter.

    Raises:
        ValueError: names them.
    """
    for group, own in zip(optimizer.param_groups, before, strict=True):
        for key, value in own.items():
            if isinstance(value, int | float) != isinstance(group.get(key), int | float):
                raise ValueError(f"{key} of the optimizer is {group.get(key)!r:.40}, expected such as {value!r}")
    # The others check their state by themselves.
    is_plain = isinstance(optimizer, Muon) or type(optimizer).__module__.startswith("torch.optim.")
    for parameter, moments in optimizer.state.items() if is_plain else ():
        for key in MOMENTS & moments.keys():
            if moments[key] is not None and moments[key].shape != parameter.shape:
                shapes = f"{tuple(moments[key].shape)}, expected {tuple(parameter.shape)}"
                raise ValueError(f"{key} of the optimizer has the shape {shapes}")


def _kind(mapping: dict[str, Any], name: str) -> str:
    return f"a {type(mapping[name]).__name__}" if name in mapping else "missing"


def _random_state() -> dict[str, Any]:
    numpy = np.random.get_state(legacy=False)
    keys, position = numpy["state"]["key"], numpy["state"]["pos"]
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        **({"mps": torch.mps.get_rng_state()} if torch.backends.mps.is_available() else {}),
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
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])
    random.setstate((3, tuple(state["python"]), state.get("python_gauss")))
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
