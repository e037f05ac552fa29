"""memory=reversible: activations are recomputed from the output of each stage, for about one more forward pass."""

from __future__ import annotations

from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory.strategies.store import store
from svtoolkit.reversible import Chain, ReversibleSequence, by_block


def is_reversible(network: nn.Module) -> bool:
    """Whether a network has stages whose activations can be recomputed from their output."""
    return any(isinstance(module, ReversibleSequence) for module in network.modules())


def reversible(network: nn.Module) -> None:
    """Put a network under it whose stages are chains with reversible sequences; whatever else it has is stored.

    Raises:
        UserError: there is nothing to invert.
    """
    if not is_reversible(network):
        raise UserError(
            "memory=reversible needs a network with reversible stages, and this one has none; "
            "choose memory=store, or a network such as model=revnet57 or model=df_revnet89"
        )
    store(network)
    for module in network.modules():
        if isinstance(module, Chain):
            module.planner = by_block
