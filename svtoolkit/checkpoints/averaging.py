"""The mean of several checkpoints (Polyak averaging over epochs, as WeSpeaker's average_model)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from svtoolkit.errors import UserError


def average_weights(state_dicts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Mean of every floating-point tensor, summed in float64; integer counters take the largest value.

    Types are kept, and the state dicts are not changed: they are read one after the other.

    Raises:
        UserError: no state dict, or two of them with different names, shapes or types.
    """
    total: dict[str, Tensor] = {}
    kinds: dict[str, str] = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for count, weights in enumerate(state_dicts, start=1):
        if count == 1:
            kinds = {name: _kind(tensor) for name, tensor in weights.items()}
            dtypes = {name: tensor.dtype for name, tensor in weights.items()}
            total = {name: tensor.to(_summed_in(tensor.dtype), copy=True) for name, tensor in weights.items()}
            continue
        _check_same(kinds, {name: _kind(tensor) for name, tensor in weights.items()}, count)
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                total[name] += tensor
            else:
                total[name] = torch.maximum(total[name], tensor)
    if not count:
        raise UserError("there is no checkpoint to average; train at least one epoch first")
    return {
        name: (tensor / count).to(dtypes[name]) if tensor.is_floating_point() else tensor
        for name, tensor in total.items()
    }


def _summed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype.is_floating_point else dtype


def _kind(tensor: Tensor) -> str:
    """Shape and type, for comparison and messages."""
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')}"


def _check_same(first: Mapping[str, str], other: Mapping[str, str], number: int) -> None:
    for name in [*first, *other]:
        here, there = other.get(name, "missing"), first.get(name, "missing")
        if here != there:
            raise UserError(
                "checkpoints of different networks cannot be averaged; give those of one run: "
                f"{name!r} is {here} in checkpoint {number} and {there} in checkpoint 1"
            )
