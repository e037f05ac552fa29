"""Networks for tests of their shapes."""

from __future__ import annotations

from torch import nn


def with_zeros(network: nn.Module) -> nn.Module:
    """A network of the meta device with zeros for weights: a small forward takes less time than one on meta."""
    network.to_empty(device="cpu")
    for tensor in network.state_dict().values():
        tensor.zero_()
    return network
