"""WeSpeaker's names for the weights of our networks, both ways."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from svtoolkit.checkpoints.wespeaker.families import LAYOUTS
from svtoolkit.checkpoints.wespeaker.layout import list_names, rename_to_ours, rename_to_theirs
from svtoolkit.errors import UserError

HEADS = "projection."
"""What the names of a classification head begin with."""


def to_wespeaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict under WeSpeaker's names (wespeaker/models).

    Raises:
        UserError: a key that no network of a family that WeSpeaker has, has.
    """
    return rename_to_theirs(weights, LAYOUTS)


def from_wespeaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A WeSpeaker state dict under our names; the classification head (projection.*) is left out.

    ``num_batches_tracked`` that WeSpeaker's averaging made a float becomes an integer again.

    Raises:
        UserError: a key that no network of ours has, or a part of the network without any.
    """
    return rename_to_ours({name: tensor for name, tensor in weights.items() if not name.startswith(HEADS)}, LAYOUTS)


def load_wespeaker(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give one of our networks the weights of a WeSpeaker state dict, all of them.

    Raises:
        UserError: weights that are missing, that the network does not have, or of another shape; the network is as it
            was then.
    """
    ours, wanted = from_wespeaker(weights), network.state_dict()
    problems = []
    if missing := [name for name in wanted if name not in ours]:
        problems.append(f"there is no {list_names(missing)}")
    if unexpected := [name for name in ours if name not in wanted]:
        problems.append(f"the network has no {list_names(unexpected)}")
    shapes = [
        f"{name!r} is {tuple(ours[name].shape)} where the network has {tuple(wanted[name].shape)}"
        for name in wanted
        if name in ours and ours[name].shape != wanted[name].shape
    ]
    if shapes:
        problems.append(shapes[0] + (f", and {len(shapes) - 1} more are of another shape" if shapes[1:] else ""))
    if problems:
        raise UserError(
            f"the weights are those of another network (under our names): {'; '.join(problems)}; build the network "
            "that the config.yaml beside them describes"
        )
    network.load_state_dict(ours)
