"""Every network by name: one row each."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
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
        UserError: unknown name or option (with the nearest known one), or a size that is no whole number above 0.
    """
    if not isinstance(name, str) or name not in NETWORKS:
        raise UserError(f"there is no network {name!r}; {_nearest(str(name), NETWORKS)}(all: {', '.join(NETWORKS)})")
    build = NETWORKS[name].build
    known = list(inspect.signature(build).parameters)
    for key in options:
        if key not in known:
            valid = ", ".join(known)
            raise UserError(f"network {name} has no option {key!r}; {_nearest(key, known)}valid are {valid}")
    sizes = {"num_bins": num_bins, "embedding_dim": embedding_dim}
    sizes |= {key: value for key, value in options.items() if value is not None}
    for key, value in sizes.items():
        if type(value) is not int or value < 1:
            raise UserError(f"network {name}: {key} is {value!r}, expected a whole number of 1 or more")
    return build(**sizes)


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.4)
    return f"did you mean {near[0]!r}? " if near else ""
