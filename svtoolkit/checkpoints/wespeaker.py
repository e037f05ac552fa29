"""WeSpeaker's names for the weights of our networks, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from svtoolkit.errors import UserError

_BATCH_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_BLOCK = rf"\d+\.(conv[123]\.weight|bn[123]\.{_BATCH_NORM}|shortcut\.(0\.weight|1\.{_BATCH_NORM}))"

# First part of a name, ours and theirs, and what may follow it. Stages are counted from 0 here and from 1 there.
_PARTS = (
    ("stem.0.", "conv1.", "weight"),
    ("stem.1.", "bn1.", _BATCH_NORM),
    *((f"stages.{stage}.", f"layer{stage + 1}.", _BLOCK) for stage in range(4)),
    ("embedding.", "seg_1.", "(weight|bias)"),
)
_PARTS_BACK = tuple((theirs, ours, rest) for ours, theirs, rest in _PARTS)


def to_wespeaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our ResNet state dict under WeSpeaker's names (wespeaker/models/resnet.py, two_emb_layer=False).

    Raises:
        UserError: a key that no ResNet has.
    """
    theirs = {}
    for name, tensor in weights.items():
        renamed = _rename(name, _PARTS)
        if renamed is None:
            raise UserError(f"{name!r} is no weight of a ResNet and has no name in WeSpeaker's layout")
        theirs[renamed] = tensor
    return theirs


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
        renamed = _rename(name, _PARTS_BACK)
        if renamed is None:
            raise UserError(
                f"{name!r} is no weight of a WeSpeaker ResNet with one embedding layer; expected conv1, bn1, "
                "layer1 to layer4 and seg_1"
            )
        ours[renamed] = tensor.long() if name.endswith("num_batches_tracked") else tensor
    return ours


def _rename(name: str, parts: tuple[tuple[str, str, str], ...]) -> str | None:
    for source, target, rest in parts:
        if name.startswith(source) and re.fullmatch(rest, name.removeprefix(source)):
            return target + name.removeprefix(source)
    return None
