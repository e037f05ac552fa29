"""memory=recompute_norm: what BatchNorm and the activation after it make is computed again (Chen et al. 2016)."""

from __future__ import annotations

from functools import partial

from torch import nn

from svtoolkit.memory.forward_context import set_forward_context
from svtoolkit.memory.strategies.store import store
from svtoolkit.reversible.recipes import recomputed_norms


def recompute_norm(network: nn.Module, *, expansions: bool) -> None:
    """Put any network under it; gradients are those of stored activations, bit for bit.

    Args:
        expansions: whether what 1x1 convolutions with more channels than they read make is computed again, too.
    """
    store(network)
    set_forward_context(network, partial(recomputed_norms, expansions=expansions))
