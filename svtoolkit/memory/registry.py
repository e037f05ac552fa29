"""Every memory strategy by name: one row each, imported when it is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svtoolkit.config import CheckpointConfig, MemoryStrategyConfig, OffloadConfig, PlannedConfig, RecomputeNormConfig
from svtoolkit.errors import UserError
from svtoolkit.registry import Registry, Row, check_settings, defaults

if TYPE_CHECKING:
    from torch import nn

STRATEGIES = Registry(
    "memory strategy",
    "svtoolkit.memory",
    {
        "reversible": Row(
            "svtoolkit.memory.strategies.reversible:reversible",
            help="activations are recomputed; refused where no stage is reversible",
        ),
        "hybrid": Row(
            "svtoolkit.memory.strategies.hybrid:hybrid",
            help="as reversible, and blocks are inverted layer by layer; of networks with such insides alone",
        ),
        "store": Row(
            "svtoolkit.memory.strategies.store:store", help="autograd stores activations, of a reversible network, too"
        ),
        "checkpoint": Row(
            "svtoolkit.memory.strategies.checkpoint:checkpoint",
            CheckpointConfig,
            help="inputs of blocks are kept, the rest is recomputed",
        ),
        "stash8": Row(
            "svtoolkit.memory.strategies.stash8:stash8",
            help="as checkpoint, with 8 bits a value: a quarter of its memory; gradients are slightly off",
        ),
        "offload": Row(
            "svtoolkit.memory.strategies.offload:offload",
            OffloadConfig,
            help="activations wait in host memory, moved beside the computation; of a GPU alone",
        ),
        "recompute_norm": Row(
            "svtoolkit.memory.strategies.recompute_norm:recompute_norm",
            RecomputeNormConfig,
            help="what norms, and activations after them, make is recomputed: a fifth to a half less",
        ),
        "planned": Row(
            "svtoolkit.memory.strategies.planned:planned",
            PlannedConfig,
            help="every block as is best for the whole: least time in so much memory, or least memory in so much time",
        ),
    },
    MemoryStrategyConfig,
)
"""Name -> what puts a network under the strategy. A target takes the network, and the settings that its own have
beside those of all by keyword; it raises UserError and changes nothing where it cannot."""

AUTO = "auto"
CHOSEN_FROM = ("hybrid", "reversible", "store")
"""auto is the first of these that does not refuse."""
LARGEST_BITS = 20
"""A finer grid leaves float32 streams less room than trained networks take: 16 at 2**-20."""


def apply_strategy(
    network: nn.Module, strategy: str = AUTO, *, exact: bool = True, exact_bits: int = 14, **settings: Any
) -> str:
    """Choose how a network keeps its activations. Weights and results are not touched: it can be changed at any time.

    Args:
        network: any network.
        strategy: one of ``STRATEGIES``, or auto.
        exact: streams of reversible stages on a dyadic grid: gradients are then equal bit for bit whatever the
            strategy. It belongs to the arithmetic of the network: to compare strategies, give both the same.
        exact_bits: the grid of float32 streams is 2**-exact_bits.
        settings: further ones that the strategy has.

    Returns:
        the strategy in force.

    Raises:
        UserError: an unknown word or setting, a grid out of range, or what was asked for is not possible with this
            network, which then stays as it was.
    """
    from svtoolkit.reversible import MomentumSequence, ReversibleSequence

    if strategy != AUTO and strategy not in STRATEGIES:
        raise UserError(f"memory.strategy is {strategy!r}, expected one of {', '.join([AUTO, *STRATEGIES])}")
    if type(exact) is not bool:
        raise UserError(f"memory.exact is {exact!r}, expected true or false")
    if type(exact_bits) is not int or not 0 <= exact_bits <= LARGEST_BITS:
        raise UserError(f"memory.exact_bits is {exact_bits!r}, expected a whole number from 0 to {LARGEST_BITS}")
    if not exact and any(isinstance(module, MomentumSequence) and module.bits for module in network.modules()):
        raise UserError(
            "memory.exact is false, and what model.remainder_bits of this network keep are bits of the grid; "
            "leave memory.exact at true"
        )
    own = MemoryStrategyConfig if strategy == AUTO else STRATEGIES[strategy].settings or MemoryStrategyConfig
    check_settings(f"memory strategy {strategy}", own, settings)
    if strategy == AUTO:
        strategy = _apply_first_possible(network)
    else:
        of_all = defaults(MemoryStrategyConfig)
        begins = {key: value for key, value in defaults(own).items() if key not in of_all}
        STRATEGIES.load(strategy)(network, **{**begins, **settings})
    for module in network.modules():
        if isinstance(module, ReversibleSequence):
            module.exact, module.exact_bits = exact, exact_bits
    return strategy


def _apply_first_possible(network: nn.Module) -> str:
    *others, last = CHOSEN_FROM
    for name in others:
        try:
            STRATEGIES.load(name)(network)
        except UserError:
            continue
        return name
    STRATEGIES.load(last)(network)
    return last
