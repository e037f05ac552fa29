"""The mean of several checkpoints (Polyak averaging over epochs, as WeSpeaker's average_model)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from svtoolkit.errors import UserError


def average_weights(state_dicts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Mean of every floating-point tensor, summed in float64; integer counters take the largest value.

    Raises:
        UserError: no state dict, or two of them with different names or shapes.
    """
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for weights in state_dicts:
        count += 1
        if not total:
            total = {name: tensor.double() for name, tensor in weights.items()}
            kinds = {name: tensor.dtype for name, tensor in weights.items()}
            continue
        if {name: tensor.shape for name, tensor in total.items()} != {name: t.shape for name, t in weights.items()}:
            raise UserError("checkpoints of different networks cannot be averaged; give those of one run")
        for name, tensor in weights.items():
            if kinds[name].is_floating_point:
                total[name] += tensor.double()
            else:
                total[name] = torch.maximum(total[name], tensor.double())
    if not count:
        raise UserError("there is no checkpoint to average; train at least one epoch first")
    return {
        name: (tensor / count if kinds[name].is_floating_point else tensor).to(kinds[name])
        for name, tensor in total.items()
    }
