"""WeSpeaker's names for the weights of our networks, both ways, and which network of ours its config.yaml describes."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from svtoolkit.checkpoints.layout import fill_network, rename_to_ours, rename_to_theirs
from svtoolkit.checkpoints.redimnet_names import redimnet2_layout
from svtoolkit.checkpoints.wespeaker.description import network_of
from svtoolkit.checkpoints.wespeaker.families import LAYOUTS

HEADS = "projection."
"""What the names of a classification head begin with."""


def to_wespeaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict under WeSpeaker's names (wespeaker/models).

    Raises:
        UserError: a key that no network of a family that WeSpeaker has, has.
    """
    return rename_to_theirs(weights, (*LAYOUTS, redimnet2_layout(weights)), "WeSpeaker")


def from_wespeaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A WeSpeaker state dict under our names; the classification head (projection.*) is left out.

    ``num_batches_tracked`` that WeSpeaker's averaging made a float becomes an integer again.

    Raises:
        UserError: a key that no network of ours has, or a part of the network without any.
    """
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(HEADS)}
    return rename_to_ours(kept, (*LAYOUTS, redimnet2_layout(kept)), "WeSpeaker")


def load_wespeaker(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give one of our networks the weights of a WeSpeaker state dict, all of them.

    Raises:
        UserError: weights that are missing, that the network does not have, or of another shape; the network is as it
            was then.
    """
    fill_network(network, from_wespeaker(weights))
