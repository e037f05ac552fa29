"""memory=store: autograd keeps the activations that it needs, as everywhere."""

from __future__ import annotations

from torch import nn

from svtoolkit.memory.forward_context import set_forward_context
from svtoolkit.reversible import Chain, LayerwiseFunction, share_values


def store(network: nn.Module) -> None:
    """Put any network under it, whatever it was under before."""
    share_values(network, None)
    for module in network.modules():
        set_forward_context(module, None)
        if isinstance(module, Chain):
            module.planner = None
        if isinstance(module, LayerwiseFunction):
            module.layerwise = False
