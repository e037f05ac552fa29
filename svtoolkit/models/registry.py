"""Every network by name: one row each."""

from __future__ import annotations

import difflib
from typing import Any

from svtoolkit.errors import UserError
from svtoolkit.models.blocks import BasicBlock, Bottleneck
from svtoolkit.models.resnet import ResNetSpec
from svtoolkit.models.speaker_network import SpeakerNetwork

NETWORKS: dict[str, ResNetSpec] = {
    # for two CPU cores: narrow, and the stem halves the frequency axis
    "resnet10": ResNetSpec(BasicBlock, (1, 1, 1, 1), base_width=16, stem_stride=(2, 1)),
    # WeSpeaker, examples/voxceleb/v2
    "resnet18": ResNetSpec(BasicBlock, (2, 2, 2, 2)),
    "resnet34": ResNetSpec(BasicBlock, (3, 4, 6, 3)),
    "resnet50": ResNetSpec(Bottleneck, (3, 4, 6, 3)),
    "resnet101": ResNetSpec(Bottleneck, (3, 4, 23, 3)),
    "resnet152": ResNetSpec(Bottleneck, (3, 8, 36, 3)),
    "resnet221": ResNetSpec(Bottleneck, (6, 16, 48, 3)),
    "resnet293": ResNetSpec(Bottleneck, (10, 20, 64, 3)),
}


def list_models() -> list[str]:
    """Names that ``build_model`` knows."""
    return list(NETWORKS)


def build_model(name: str, *, num_bins: int = 80, embedding_dim: int = 256, **options: Any) -> SpeakerNetwork:
    """Build a network with fresh weights.

    Args:
        name: one of ``list_models()``.
        num_bins: mel bins of the input.
        embedding_dim: size of the embedding.
        options: of the family; ResNet: ``base_width``, channels of the first stage (None: as published).

    Returns:
        a module with input (batch, frames, num_bins) and output (batch, embedding_dim).

    Raises:
        UserError: unknown name or a size below 1; names the nearest known name.
    """
    if name not in NETWORKS:
        near = difflib.get_close_matches(name, NETWORKS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(f"there is no network {name!r}; {hint}(all: {', '.join(NETWORKS)})")
    sizes = {"num_bins": num_bins, "embedding_dim": embedding_dim, **options}
    for key, value in sizes.items():
        if value is not None and value < 1:
            raise UserError(f"network {name}: {key} is {value}, expected 1 or more")
    return NETWORKS[name].build(num_bins=num_bins, embedding_dim=embedding_dim, **options)
