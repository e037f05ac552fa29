"""Speaker embedding networks, built by name: (batch, frames, bins) -> (batch, embedding_dim).

Names are looked up when they are first used, so that listing the networks does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svtoolkit.system.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from svtoolkit.models.build import build_model, list_models
    from svtoolkit.models.registry import NETWORKS
    from svtoolkit.models.speaker_network import ChainNetwork, PooledNetwork, SpeakerNetwork

__getattr__ = lazy_imports(
    __name__,
    {
        "build": "build_model list_models",
        "registry": "NETWORKS",
        "speaker_network": "ChainNetwork PooledNetwork SpeakerNetwork",
    },
)
