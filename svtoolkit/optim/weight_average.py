"""An exponential moving average of a network's weights, kept beside the weights that are trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """Exponential moving average in float32 of what training changes: trained weights and running statistics.

    average <- d average + (1 - d) weight after each update of the weights, with d = min(decay, (1 + t) / (10 + t)) for
    t earlier updates: TensorFlow's ``ExponentialMovingAverage`` with ``num_updates``, in which the random weights of
    the beginning are soon forgotten. Running statistics of BatchNorm are averaged in the same way, as `svt average`
    takes their mean: those of the newest weights would not fit the average, and to measure them anew takes a pass over
    the training data.

    Args:
        network: on its device, with the weights that the average begins with.
        decay: from 0 to below 1.

    Attributes:
        weights: name as in ``network.state_dict()`` -> average, on the device of the weight.
        updates: so far.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.begin(network)

    def begin(self, network: nn.Module) -> None:
        """Begin with these weights, which may have other shapes than those before."""
        self.updates = 0
        self.weights = {
            name: tensor.detach().to(torch.float32, copy=True) for name, tensor in averaged_tensors(network).items()
        }

    def update(self, network: nn.Module) -> None:
        """Take in the weights after an optimizer step."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        newest = [tensor.detach().float() for tensor in averaged_tensors(network).values()]
        get_ema_multi_avg_fn(decay)(list(self.weights.values()), newest, None)
        self.updates += 1

    @contextmanager
    def in_place_of_weights(self, network: nn.Module) -> Iterator[None]:
        """Inside the block the network has the average; afterwards its own weights, bit for bit."""
        tensors = averaged_tensors(network)
        own = [tensor.detach().clone() for tensor in tensors.values()]
        _copy(tensors.values(), self.weights.values())
        try:
            yield
        finally:
            _copy(tensors.values(), own)

    def state_dict(self) -> dict[str, Any]:
        """Plain data and tensors: what ``load_state_dict`` resumes from."""
        return {"updates": self.updates, "weights": dict(self.weights)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume.

        Raises:
            ValueError: it is of another network.
        """
        updates, found = state["updates"], state["weights"]
        differing = [
            name
            for name in self.weights.keys() | found.keys()
            if name not in self.weights or name not in found or found[name].shape != self.weights[name].shape
        ]
        if differing or not isinstance(updates, int):
            raise ValueError(f"the moving average is of other weights, such as {min(differing, default=updates)!r}")
        _copy(self.weights.values(), [found[name] for name in self.weights])
        self.updates = updates


def averaged_tensors(network: nn.Module) -> dict[str, Tensor]:
    """What of a network is averaged, by name: trained weights and running statistics, no counters."""
    return {
        name: tensor
        for name, tensor in network.state_dict(keep_vars=True).items()
        if tensor.is_floating_point() and (tensor.requires_grad or not isinstance(tensor, nn.Parameter))
    }


def averaged_model(state: Mapping[str, Tensor], average: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A network's state with its average in the place of the weights, each in its own type."""
    return {name: average[name].to(tensor.dtype) if name in average else tensor for name, tensor in state.items()}


@torch.no_grad()
def _copy(targets: Any, sources: Any) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
