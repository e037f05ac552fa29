"""What becomes of a network's activations between forward and backward pass: a file and a row each strategy."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory.strategies.reversible import is_reversible, reversible
from svtoolkit.memory.strategies.store import store
from svtoolkit.reversible import EXACT_BITS, ReversibleSequence

STRATEGIES: dict[str, Callable[[nn.Module], None]] = {"reversible": reversible, "store": store}
"""Name -> what puts a network under the strategy, or raises UserError and changes nothing; auto is the first that
does not."""

AUTO = "auto"
LARGEST_BITS = 20
"""A finer grid leaves float32 streams less room than trained networks take: 16 at 2**-20."""


def apply_strategy(
    network: nn.Module, strategy: str = AUTO, *, exact: bool = True, exact_bits: int = EXACT_BITS
) -> str:
    """Choose how a network keeps its activations. Weights and results are not touched: it can be changed at any time.

    Args:
        network: any network.
        strategy: one of ``STRATEGIES``, or auto.
        exact: streams of reversible stages on a dyadic grid: gradients are then equal bit for bit whatever the
            strategy. It belongs to the arithmetic of the network: to compare strategies, give both the same.
        exact_bits: the grid of float32 streams is 2**-exact_bits.

    Returns:
        the strategy in force.

    Raises:
        UserError: an unknown word, a grid out of range, or what was asked for is not possible with this network.
    """
    if strategy != AUTO and strategy not in STRATEGIES:
        raise UserError(f"memory.strategy is {strategy!r}, expected one of {', '.join([AUTO, *STRATEGIES])}")
    if type(exact) is not bool:
        raise UserError(f"memory.exact is {exact!r}, expected true or false")
    if type(exact_bits) is not int or not 0 <= exact_bits <= LARGEST_BITS:
        raise UserError(f"memory.exact_bits is {exact_bits!r}, expected a whole number from 0 to {LARGEST_BITS}")
    if strategy == AUTO:
        strategy = _apply_first_possible(network)
    else:
        STRATEGIES[strategy](network)
    for module in network.modules():
        if isinstance(module, ReversibleSequence):
            module.exact, module.exact_bits = exact, exact_bits
    return strategy


def _apply_first_possible(network: nn.Module) -> str:
    *others, last = STRATEGIES
    for name in others:
        try:
            STRATEGIES[name](network)
        except UserError:
            continue
        return name
    STRATEGIES[last](network)
    return last
