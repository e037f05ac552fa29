"""memory=hybrid: as memory=reversible, and the insides of blocks are inverted layer by layer (Hascoet et al. 2023)."""

from __future__ import annotations

from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory.strategies.reversible import reversible
from svtoolkit.reversible import LayerwiseFunction


def hybrid(network: nn.Module) -> None:
    """Put a network under it whose reversible blocks have insides that can be inverted.

    Raises:
        UserError: it has none.
    """
    functions = [module for module in network.modules() if isinstance(module, LayerwiseFunction)]
    if not functions:
        raise UserError(
            "memory=hybrid needs reversible blocks whose insides can be inverted, and this network has none; choose "
            "model=revnext57, model=revnet57 with model.insides=hybrid, or another memory=..."
        )
    reversible(network)
    for function in functions:
        function.layerwise = True
