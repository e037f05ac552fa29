"""The contract of every network: stem, stages, pooling, embedding."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from svtoolkit.reversible import run_in_chain


class SpeakerNetwork(nn.Module):
    """Log-mel frames in, speaker embedding out.

    Attributes:
        stem: (batch, 1, bins, frames) -> (batch, channels, ...).
        stages: ModuleList of sequential stages.
        pooling: (batch, channels, bins, frames) -> (batch, statistics).
        embedding: (batch, statistics) -> (batch, embedding_dim).
        layers: convolutions of the main path and the last Linear, as the authors count them for the network's name.

    Nothing but these four may be assumed of a network by memory strategies, exporters and checkpoint readers.
    """

    def __init__(
        self,
        stem: nn.Module,
        stages: Iterable[nn.Module],
        pooling: nn.Module,
        embedding: nn.Module,
        *,
        layers: int | None = None,
    ) -> None:
        super().__init__()
        self.layers = layers
        self.stem = stem
        self.stages = nn.ModuleList(stages)
        self.pooling = pooling
        self.embedding = embedding

    def forward(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, embedding_dim)."""
        feature_map = run_in_chain([self.stem, *self.stages], frames.transpose(1, 2).unsqueeze(1))
        return self.embedding(self.pooling(feature_map))
