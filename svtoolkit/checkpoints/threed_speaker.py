"""3D-Speaker's names for weights of our CAM++, ResNet, Res2Net, ERes2Net, ERes2NetV2 and sb_ecapa_tdnn, both ways."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from svtoolkit.checkpoints.layout import fill_network, rename_to_ours, rename_to_theirs
from svtoolkit.checkpoints.speechbrain.families import ECAPA_TDNN
from svtoolkit.checkpoints.wespeaker.families import CAMPPLUS, RES2NETS, RESNETS, eres2nets

LAYOUTS = (
    CAMPPLUS,
    *RESNETS,
    *RES2NETS,
    *eres2nets(
        "ERes2Net",
        ["layer1_downsample", "layer2_downsample", "layer3_downsample"],
        ["fuse_mode12", "fuse_mode123", "fuse_mode1234"],
    ),
    *eres2nets("ERes2NetV2", ["layer3_ds"], ["fuse34"]),
    ECAPA_TDNN,  # speakerlab/models/ecapa_tdnn is SpeechBrain's
)
"""Where two fit equally well, the first is meant."""


def to_3d_speaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict under 3D-Speaker's names (speakerlab/models).

    Raises:
        UserError: a key that no network of a family that 3D-Speaker has, has.
    """
    return rename_to_theirs(weights, LAYOUTS, "3D-Speaker")


def from_3d_speaker(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A 3D-Speaker state dict under our names. Its networks pool with another epsilon: see ``model.pooling_eps``.

    Raises:
        UserError: a key that no network of ours has, or a part of the network without any.
    """
    return rename_to_ours(weights, LAYOUTS, "3D-Speaker")


def load_3d_speaker(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give one of our networks the weights of a 3D-Speaker state dict, all of them.

    Raises:
        UserError: weights that are missing, that the network does not have, or of another shape; the network is as it
            was then.
    """
    fill_network(network, from_3d_speaker(weights))
