"""Every network by name: one row each."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Any, Protocol

from svtoolkit.errors import UserError
from svtoolkit.models.blocks import BasicBlock, Bottleneck
from svtoolkit.models.df_resnet import DFResNetSpec
from svtoolkit.models.resnet import ResNetSpec
from svtoolkit.models.revnet import DFRevNetSpec, RevNetSpec
from svtoolkit.models.speaker_network import SpeakerNetwork


class NetworkSpec(Protocol):
    """What tells one network of a family from another; a family's own options are further keywords of ``build``."""

    @property
    def layers(self) -> int:
        """Convolutions of the main path and the last Linear: the number in the network's name."""

    def build(self, *, num_bins: int, embedding_dim: int) -> SpeakerNetwork:
        """A network with fresh weights."""


NETWORKS: dict[str, NetworkSpec] = {
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
    # the reversible twin of resnet10
    "revnet_tiny": RevNetSpec("II", "basic", (16, 32, 64, 128), (1, 2, 3, 1), stem_stride=(2, 1)),
    # Liu & Qian, tables III (RevNet) and IV (DF-RevNet)
    "revnet46": RevNetSpec("I", "basic", (48, 96, 192, 300), (2, 3, 5, 3)),
    "revnet57": RevNetSpec("II", "basic", (48, 96, 192, 300), (2, 3, 5, 3)),
    "revnet126": RevNetSpec("I", "basic", (48, 96, 192, 384), (3, 4, 23, 3)),
    "revnet137": RevNetSpec("II", "basic", (48, 96, 192, 384), (3, 4, 23, 3)),
    "revnet140": RevNetSpec("I", "bottleneck", (48, 96, 192, 300), (3, 4, 15, 3)),
    "revnet155": RevNetSpec("II", "bottleneck", (48, 96, 192, 300), (3, 4, 15, 3)),
    "revnet178": RevNetSpec("I", "basic", (48, 96, 192, 384), (3, 8, 32, 3)),
    "revnet197": RevNetSpec("II", "basic", (48, 96, 192, 384), (3, 8, 34, 3)),
    "revnet230": RevNetSpec("I", "bottleneck", (48, 96, 192, 300), (3, 8, 26, 3)),
    "revnet245": RevNetSpec("II", "bottleneck", (48, 96, 192, 300), (3, 8, 26, 3)),
    "df_revnet66": DFRevNetSpec("I", (3, 3, 5, 3)),
    "df_revnet89": DFRevNetSpec("II", (3, 3, 5, 3)),
    "df_revnet126": DFRevNetSpec("I", (3, 3, 15, 3)),
    "df_revnet149": DFRevNetSpec("II", (3, 3, 15, 3)),
    "df_revnet258": DFRevNetSpec("I", (3, 8, 32, 3)),
    "df_revnet281": DFRevNetSpec("II", (3, 8, 32, 3)),
    "df_revnet354": DFRevNetSpec("I", (3, 8, 48, 3)),
    "df_revnet377": DFRevNetSpec("II", (3, 8, 48, 3)),
    # Liu et al., "DF-ResNet", Interspeech 2022
    "df_resnet56": DFResNetSpec((3, 3, 9, 3)),
    "df_resnet110": DFResNetSpec((3, 3, 27, 3)),
    "df_resnet179": DFResNetSpec((3, 8, 45, 3)),
    "df_resnet233": DFResNetSpec((3, 8, 63, 3)),
    # WeSpeaker, wespeaker/models/gemini_dfresnet.py
    "gemini_df_resnet60": DFResNetSpec((3, 3, 9, 3), gemini=True),
    "gemini_df_resnet114": DFResNetSpec((3, 3, 27, 3), gemini=True),
    "gemini_df_resnet183": DFResNetSpec((3, 8, 45, 3), gemini=True),
    "gemini_df_resnet237": DFResNetSpec((3, 8, 63, 3), gemini=True),
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
        options: of the family; ResNet: ``base_width``, channels of the first stage. None: as published, of any family.

    Returns:
        a module with input (batch, frames, num_bins) and output (batch, embedding_dim).

    Raises:
        UserError: unknown name or option (with the nearest known one), or a size that is no whole number above 0.
    """
    if not isinstance(name, str) or name not in NETWORKS:
        raise UserError(f"there is no network {name!r}; {_nearest(str(name), NETWORKS)}(all: {', '.join(NETWORKS)})")
    build = NETWORKS[name].build
    known = _options(NETWORKS[name])
    for key, value in options.items():
        if key not in known and not (value is None and any(key in _options(spec) for spec in NETWORKS.values())):
            valid = ", ".join(known)
            raise UserError(f"network {name} has no option {key!r}; {_nearest(key, known)}valid are {valid}")
    sizes = {"num_bins": num_bins, "embedding_dim": embedding_dim}
    sizes |= {key: value for key, value in options.items() if value is not None}
    for key, value in sizes.items():
        if type(value) is not int or value < 1:
            raise UserError(f"network {name}: {key} is {value!r}, expected a whole number of 1 or more")
    return build(**sizes)


def _options(spec: NetworkSpec) -> list[str]:
    return list(inspect.signature(spec.build).parameters)


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.4)
    return f"did you mean {near[0]!r}? " if near else ""
