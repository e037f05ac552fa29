"""What of every network fits a card, from the stored facts of the networks: a question of no time."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config import PlanConfig
from svtoolkit.errors import UserError
from svtoolkit.planning.cards import Card
from svtoolkit.planning.network_facts import NetworkFacts, stored_facts
from svtoolkit.planning.published_eers import VOX1_O

COPIES = 3
"""Weights, gradients, momentum: float32 each."""

WORKSPACE = 0.3
"""Input and result of the largest convolution, of the memory of a crop, at the most: of RevNets; of others less."""


@dataclass(frozen=True)
class FittingNetwork:
    """How a network fits in float32, stored or, where it is reversible, recomputed.

    Attributes:
        layers: None where the network does not say.
        micro_batch: most crops at once that divide the share; 0: not one fits.
        peak_bytes: with so many, or with one where none fits.
        eer: published, percent; None: none is stored.
    """

    name: str
    layers: int | None
    strategy: str
    micro_batch: int
    peak_bytes: float
    eer: float | None


def fitting_networks(config: PlanConfig, card: Card) -> list[FittingNetwork]:
    """All networks of ours in the order of the registry.

    Raises:
        UserError: sizes of input that no facts are stored of.
    """
    known = stored_facts(config.frames, config.num_bins)
    if not known:
        raise UserError(
            f"model=all answers for frames={PlanConfig.frames} and num_bins={PlanConfig.num_bins}, whose figures are "
            f"stored, not for frames={config.frames} and num_bins={config.num_bins}; name one network"
        )
    share = config.effective_batch // config.gpus
    sizes = [size for size in range(share, 0, -1) if share % size == 0]
    return [_fit(facts, config, card, sizes) for facts in known.values()]


def _fit(facts: NetworkFacts, config: PlanConfig, card: Card, sizes: list[int]) -> FittingNetwork:
    copies = COPIES + (config.gpus > 1)  # buckets in which the gradients of several cards are added up
    weights = 4 * copies * (facts.parameters + config.num_classes * facts.embedding_dim)
    weights += 4 * facts.parameters if config.ema else 0  # their moving average

    def peak(crops: int) -> float:
        tensors = weights + crops * facts.bytes_per_utterance
        return tensors + sum(card.taken(tensors, WORKSPACE * crops * facts.bytes_per_utterance).values())

    fitting = next((size for size in sizes if peak(size) <= card.memory_bytes), 0)
    return FittingNetwork(facts.name, facts.layers, facts.strategy, fitting, peak(fitting or 1), VOX1_O.get(facts.name))
