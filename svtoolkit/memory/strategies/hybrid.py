"""memory=hybrid: as memory=reversible, and the insides of blocks are inverted layer by layer (Hascoet et al. 2023)."""

from __future__ import annotations

from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory.strategies.reversible import reversible
from svtoolkit.reversible import LayerwiseFunction


def has_invertible_blocks(network: nn.Module) -> bool:
    """Whether a network has reversible blocks whose insides can be inverted layer by layer."""
    return any(isinstance(module, LayerwiseFunction) for module in network.modules())


def hybrid(network: nn.Module) -> None:
    """Put a network under it whose reversible blocks have insides that can be inverted.

    Raises:
        UserError: it has none.
    """
    if not has_invertible_blocks(network):
        raise UserError(
            "memory=hybrid needs reversible blocks whose insides can be inverted, and this network has none; choose "
            "memory=recompute_norm, or model=revnext57, or model=revnet57 with model.insides=hybrid"
        )
    reversible(network)
    for module in network.modules():
        if isinstance(module, LayerwiseFunction):
            module.layerwise = True
