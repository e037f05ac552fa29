"""SpeechBrain's names for the weights of our sb_ecapa_tdnn, sb_xvector and sb_resnet, both ways."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from svtoolkit.checkpoints.layout import fill_network, rename_to_ours, rename_to_theirs
from svtoolkit.checkpoints.speechbrain.families import LAYOUTS


def to_speechbrain(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict under SpeechBrain's names (speechbrain/lobes/models).

    Raises:
        UserError: a key that no network of a family that SpeechBrain has, has.
    """
    return rename_to_theirs(weights, LAYOUTS, "SpeechBrain")


def from_speechbrain(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A SpeechBrain state dict, an embedding_model.ckpt, under our names.

    Raises:
        UserError: a key that no network of ours has, or a part of the network without any.
    """
    return rename_to_ours(weights, LAYOUTS, "SpeechBrain")


def load_speechbrain(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give one of our networks the weights of a SpeechBrain state dict, all of them.

    Raises:
        UserError: weights that are missing, that the network does not have, or of another shape; the network is as it
            was then.
    """
    fill_network(network, from_speechbrain(weights))
