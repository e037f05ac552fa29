"""Speaker embedding networks, built by name: (batch, frames, bins) -> (batch, embedding_dim)."""

from __future__ import annotations

from svtoolkit.models.registry import build_model, list_models
from svtoolkit.models.speaker_network import ChainNetwork, SpeakerNetwork

__all__ = ["ChainNetwork", "SpeakerNetwork", "build_model", "list_models"]
