"""Facts of the networks, without building them: names, families, and what was found of those of ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from svtoolkit.models.registry import NETWORKS

STORED = Path(__file__).with_name("network_facts.json")
"""Facts of all networks of ours for input of one size, written by scripts/network_facts_table.py."""


@dataclass(frozen=True)
class NetworkFacts:
    """One network of the registry, with everything as published.

    Attributes:
        family: what its row says of it: ResNet, ECAPA-TDNN, ...
        layers: convolutions of the main path and the last Linear; None where the network does not say.
        parameters: weights, without a head over speakers.
        macs: multiplications with addition in the convolutions and products of one utterance.
        pooled_dim: size of what pooling hands to the embedding layer; None: the network has no pooling layer.
        embedding_dim: size of the embedding.
        strategy: memory strategy that memory=auto chooses on a CPU.
        bytes_per_utterance: memory that one more utterance of a large batch takes in a float32 training step of the
            network alone under that strategy.
    """

    name: str
    family: str
    layers: int | None
    parameters: int
    macs: int
    pooled_dim: int | None
    embedding_dim: int
    strategy: str
    bytes_per_utterance: float


def match_names(patterns: Sequence[str]) -> list[str]:
    """Names of the registry that match any of the patterns (``revnet*``), in the registry's order; without any, all.

    Raises:
        UserError: a pattern that matches no name.
    """
    names = list(NETWORKS)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            NETWORKS[pattern]  # which says so
    return [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]


def family_of(name: str) -> str:
    """What the row of a network says of it: ResNet, ECAPA-TDNN, ... of ours."""
    return NETWORKS[name].help or "-"


def stored_facts(frames: int, num_bins: int) -> dict[str, NetworkFacts]:
    """By name, of the networks whose facts for input of (frames, num_bins) are stored."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    if (frames, num_bins) != (stored["frames"], stored["num_bins"]):
        return {}
    return {facts["name"]: NetworkFacts(**facts) for facts in stored["networks"] if facts["name"] in NETWORKS.rows}
