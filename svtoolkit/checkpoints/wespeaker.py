"""WeSpeaker's names for the weights of our ResNets and Gemini-DF-ResNets, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from svtoolkit.errors import UserError

_BATCH_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_BLOCK = rf"\d+\.(conv[123]\.weight|bn[123]\.{_BATCH_NORM})"
_SHORTCUT = rf"\d+\.shortcut\.(0\.weight|1\.{_BATCH_NORM})"
_CONV_AND_BATCH_NORM = rf"(0\.weight|1\.{_BATCH_NORM})"


class _Part(NamedTuple):
    """Names with a common prefix: ours, theirs, and a pattern of what may follow.

    ``first_block`` is our number of the block that is their number 0.
    """

    ours: str
    theirs: str
    rest: str
    first_block: int = 0


class _Layout(NamedTuple):
    """All names of a family of networks.

    Attributes:
        network: what the family is called.
        expected: first parts of their names, for messages.
    """

    network: str
    expected: str
    parts: tuple[_Part, ...]


# Stages are counted from 0 by us and from 1 by them.
_RESNET = _Layout(
    "ResNet",
    "conv1, bn1, layer1 to layer4 and seg_1",
    (
        _Part("stem.0.", "conv1.", "weight"),
        _Part("stem.1.", "bn1.", _BATCH_NORM),
        *(_Part(f"stages.{stage}.", f"layer{stage + 1}.", f"{_BLOCK}|{_SHORTCUT}") for stage in range(4)),
        _Part("embedding.", "seg_1.", "(weight|bias)"),
    ),
)
# Their stem is downsample_layers.0; the downsampling that a stage of ours begins with is one more of these.
_GEMINI = _Layout(
    "Gemini-DF-ResNet",
    "downsample_layers.0 to downsample_layers.4, stages.0 to stages.3 and seg_1",
    (
        _Part("stem.", "downsample_layers.0.", _CONV_AND_BATCH_NORM),
        *(_Part(f"stages.{i}.0.", f"downsample_layers.{i + 1}.", _CONV_AND_BATCH_NORM) for i in range(4)),
        *(_Part(f"stages.{stage}.", f"stages.{stage}.", _BLOCK, first_block=1) for stage in range(4)),
        _Part("embedding.", "seg_1.", "(weight|bias)"),
    ),
)


def to_wespeaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict under WeSpeaker's names (wespeaker/models/resnet.py, gemini_dfresnet.py; two_emb_layer=False).

    Raises:
        UserError: a key that no ResNet or no Gemini-DF-ResNet has.
    """
    layout = _GEMINI if "stages.0.0.0.weight" in weights else _RESNET
    theirs = {}
    for name, tensor in weights.items():
        renamed = _rename(name, [(part.ours, part.theirs, part.rest, -part.first_block) for part in layout.parts])
        if renamed is None:
            raise UserError(
                f"{name!r} is not a weight of a {layout.network}; WeSpeaker's names are known for ResNets and "
                "Gemini-DF-ResNets only"
            )
        theirs[renamed] = tensor
    return theirs


def from_wespeaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A WeSpeaker state dict under our names; the classification head (projection.*) is left out.

    ``num_batches_tracked`` that WeSpeaker's averaging made a float becomes an integer again.

    Raises:
        UserError: a key that no ResNet or no Gemini-DF-ResNet of ours has.
    """
    layout = _GEMINI if "downsample_layers.0.0.weight" in weights else _RESNET
    ours = {}
    for name, tensor in weights.items():
        if name.startswith("projection."):
            continue
        renamed = _rename(name, [(part.theirs, part.ours, part.rest, part.first_block) for part in layout.parts])
        if renamed is None:
            raise UserError(
                f"{name!r} is not a weight of a WeSpeaker {layout.network} with one embedding layer; "
                f"expected {layout.expected}"
            )
        ours[renamed] = tensor.long() if name.endswith("num_batches_tracked") else tensor
    return ours


def _rename(name: str, parts: list[tuple[str, str, str, int]]) -> str | None:
    for source, target, rest, shift in parts:
        following = name.removeprefix(source)
        if name.startswith(source) and re.fullmatch(rest, following):
            if shift == 0:
                return target + following
            block, _, weight = following.partition(".")
            # There is no block before the first.
            return f"{target}{int(block) + shift}.{weight}" if int(block) + shift >= 0 else None
    return None
