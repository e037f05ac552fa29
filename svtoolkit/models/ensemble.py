"""Several networks as one, whose cosines are the means of theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from svtoolkit.models.build import build_model
from svtoolkit.models.speaker_network import SpeakerNetwork


class Ensemble(SpeakerNetwork):
    """(batch, frames, bins) -> (batch, embedding_dim): embeddings of the members beside each other.

    Each member's has length 1 / sqrt(members), so that the whole has length 1 and a cosine is the mean of the members'.

    Args:
        num_bins, embedding_dim: of the features that all take, and the sum of the members' sizes.
        members: arguments of ``build_model`` of each.

    Raises:
        ValueError: fewer than two, members of other sizes, or one that cannot be a part of a network.
    """

    def __init__(self, *, num_bins: int, embedding_dim: int, members: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        if len(members) < 2:
            raise ValueError(f"an ensemble of {len(members)}, expected two members or more")
        self.members = nn.ModuleList()
        for number, member in enumerate(members, start=1):
            if "name" not in member:
                raise ValueError(f"member {number} has no name")
            network = build_model(**member)
            if getattr(network, "only_float32", False) or getattr(network, "partials", None) is not None:
                raise ValueError(
                    f"member {number} is {member['name']}, which is run by another program or stretch by stretch, "
                    "expected networks that take a whole utterance"
                )
            if (found := member.get("num_bins", num_bins)) != num_bins:
                raise ValueError(f"member {number} takes {found} bins, expected {num_bins}")
            self.members.append(network)
        self.embedding_dim = sum(int(each.embedding_dim) for each in self.members)  # type: ignore[arg-type, misc]

    def forward(self, frames: Tensor) -> Tensor:
        units = [functional.normalize(member(frames)) for member in self.members]
        return torch.cat(units, dim=1) / math.sqrt(len(units))

    def frames_used(self, frames: int) -> int:
        """Of the first member; where others use as many or not, a trial of padding says."""
        return int(getattr(self.members[0], "frames_used", int)(frames))
