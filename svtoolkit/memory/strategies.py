"""What becomes of a network's activations between forward and backward pass."""

from __future__ import annotations

from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.reversible import EXACT_BITS, Chain, ReversibleSequence

STRATEGIES = ("auto", "store", "reversible")
EXACTNESS = {"auto": None, "always": True, "never": False}
"""Word of the configuration -> ``ReversibleSequence.exact``."""

LARGEST_BITS = 20
"""A finer grid leaves float32 streams less room than trained networks take: 16 at 2**-20."""


def apply_strategy(
    network: nn.Module, strategy: str = "auto", *, exact: str = "auto", exact_bits: int = EXACT_BITS
) -> str:
    """Choose how a network keeps its activations. Weights and results are not touched: it can be changed at any time.

    Args:
        network: any network; reversible ones are built of ``svtoolkit.reversible.Chain``.
        strategy: store: autograd keeps what it needs, as everywhere; reversible: activations are recomputed from the
            output of each stage, at the price of about one more forward pass; auto: reversible where the network is.
        exact: streams of reversible stages on a dyadic grid, which makes their inversion exact bit for bit: always,
            never, or auto: wherever autocast is on. It belongs to the arithmetic of the network: to compare the
            strategies, give both the same.
        exact_bits: the grid is 2**-exact_bits.

    Returns:
        the strategy in force: store or reversible.

    Raises:
        UserError: an unknown word, a grid out of range, or what was asked for is not possible with this network.
    """
    if strategy not in STRATEGIES:
        raise UserError(f"memory.strategy is {strategy!r}, expected one of {', '.join(STRATEGIES)}")
    if exact not in EXACTNESS:
        raise UserError(f"memory.exact is {exact!r}, expected one of {', '.join(EXACTNESS)}")
    if type(exact_bits) is not int or not 0 <= exact_bits <= LARGEST_BITS:
        raise UserError(f"memory.exact_bits is {exact_bits!r}, expected a whole number from 0 to {LARGEST_BITS}")
    sequences = [module for module in network.modules() if isinstance(module, ReversibleSequence)]
    if not sequences and strategy == "reversible":
        raise UserError(
            "memory=reversible needs a network with reversible stages, and this one has none; "
            "choose memory=store, or a network such as model=revnet57 or model=df_revnet89"
        )
    if not sequences and exact == "always":
        raise UserError("memory.exact=always concerns reversible stages, and this network has none; leave it at auto")
    recompute = bool(sequences) and strategy != "store"
    for module in network.modules():
        if isinstance(module, Chain):
            module.recompute = recompute
    for sequence in sequences:
        sequence.exact, sequence.exact_bits = EXACTNESS[exact], exact_bits
    return "reversible" if recompute else "store"
