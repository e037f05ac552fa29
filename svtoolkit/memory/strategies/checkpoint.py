"""memory=checkpoint: what comes into blocks or runs of blocks is kept, the rest is recomputed (Chen et al. 2016)."""

from __future__ import annotations

from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory.strategies.reversible import is_reversible
from svtoolkit.memory.strategies.store import store
from svtoolkit.reversible import Chain, by_block, by_halves, by_root
from svtoolkit.reversible.plans import Planner

SEGMENTS: dict[str, Planner] = {"blocks": by_block, "sqrt": by_root, "recursive": by_halves}
"""memory.segments -> which blocks are recomputed together."""


def has_blocks(network: nn.Module) -> bool:
    """Whether a network lists its blocks."""
    return any(isinstance(module, Chain) for module in network.modules())


def checkpoint(network: nn.Module, *, segments: str, name: str = "checkpoint") -> None:
    """Put a network under it that lists its blocks, as chains.

    Running statistics of BatchNorm move once a step, whatever is computed how often; gradients are those of stored
    activations, up to the order in which those of a value that is used twice are added up.

    Args:
        network: any but a reversible one.
        segments: a key of ``SEGMENTS``.
        name: of the strategy that was asked for.

    Raises:
        UserError: no blocks, a reversible network, or an unknown word.
    """
    if segments not in SEGMENTS:
        raise UserError(f"memory.segments is {segments!r}, expected one of {', '.join(SEGMENTS)}")
    if is_reversible(network):
        raise UserError(
            f"memory={name} keeps the input of every block, and memory=reversible keeps less of this network, "
            "which is reversible; choose memory=reversible, or memory=store, which is faster"
        )
    if not has_blocks(network):
        raise UserError(
            f"memory={name} needs a network that lists its blocks, and a {type(network).__name__} lists none; "
            "choose memory=store"
        )
    store(network)
    for module in network.modules():
        if isinstance(module, Chain):
            module.planner = SEGMENTS[segments]
