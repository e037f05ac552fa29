"""WeSpeaker's names for the weights of our networks, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from svtoolkit.errors import UserError

# first part of a name, ours and theirs; stages are counted from 0 here and from 1 there
_PREFIXES = (("stem.0.", "conv1."), ("stem.1.", "bn1."), ("embedding.", "seg_1."))
_OUR_STAGE, _THEIR_STAGE = re.compile(r"stages\.(\d+)\."), re.compile(r"layer(\d+)\.")


def to_wespeaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our ResNet state dict under WeSpeaker's names (wespeaker/models/resnet.py, two_emb_layer=False)."""
    return {_to_their_name(name): tensor for name, tensor in weights.items()}


def from_wespeaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A WeSpeaker ResNet state dict under our names; the classification head (projection.*) is left out.

    ``num_batches_tracked`` that WeSpeaker's averaging made a float becomes an integer again.

    Raises:
        UserError: a key that no ResNet of ours has.
    """
    ours = {}
    for name, tensor in weights.items():
        if name.startswith("projection."):
            continue
        ours[_to_our_name(name)] = tensor.long() if name.endswith("num_batches_tracked") else tensor
    return ours


def _to_their_name(name: str) -> str:
    for ours, theirs in _PREFIXES:
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    if _OUR_STAGE.match(name):
        return _OUR_STAGE.sub(lambda match: f"layer{int(match[1]) + 1}.", name, count=1)
    raise UserError(f"{name!r} is no weight of a ResNet and has no name in WeSpeaker's layout")


def _to_our_name(name: str) -> str:
    for ours, theirs in _PREFIXES:
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    if _THEIR_STAGE.match(name):
        return _THEIR_STAGE.sub(lambda match: f"stages.{int(match[1]) - 1}.", name, count=1)
    raise UserError(
        f"{name!r} is no weight of a WeSpeaker ResNet with one embedding layer; expected conv1, bn1, "
        "layer1 to layer4 and seg_1"
    )
