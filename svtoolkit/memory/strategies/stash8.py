"""memory=stash8: as memory=checkpoint, with 8 bits for each value that is kept (Chakrabarti & Moseley 2019).

Forward is exact: every block reads what the one before it made, and only what is kept of that is rounded. So the loss
and the running statistics are those of stored activations, and what is rounded in one block is not read by the next.
Gradients are those of the blocks at slightly other inputs, with the exact gradient of the loss at the end: each block
is linearised where its restored input lies. Rounding in forward, too, would give exact gradients of another network,
whose errors add up from block to block, and which is not the one that is scored afterwards.

Chakrabarti & Moseley, Backprop with Approximate Activations for Memory-efficient Network Training, NeurIPS 2019
(arXiv:1901.07988), have the scheme for single layers; Chen et al., ActNN, ICML 2021 (arXiv:2104.14129), have what it
does to gradients. Both keep what each layer reads; here a block is recomputed from its input. Rounding is to the
nearest value, so a gradient is the same whenever it is asked for; docs/memory.md has how far it is off.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from svtoolkit.memory.strategies.checkpoint import checkpoint
from svtoolkit.reversible import Chain, EightBits, by_block


def stash8(network: nn.Module) -> None:
    """Put a network under it that lists its blocks, as chains.

    Raises:
        UserError: no blocks, or a reversible network.
    """
    checkpoint(network, segments="blocks", name="stash8")
    planner = partial(by_block, stash=EightBits())
    for module in network.modules():
        if isinstance(module, Chain):
            module.planner = planner
