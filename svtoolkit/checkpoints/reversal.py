"""A trained ResNet as the reversible network of the same weights."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from svtoolkit.checkpoints.layout import list_names
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.registry import NETWORKS

PREFIX = "reversed_"
"""Before the name of a network in that of the reversible one."""
REVERSIBLE = [name.removeprefix(PREFIX) for name in NETWORKS.rows if name.startswith(PREFIX)]
"""Networks that can be reversed."""


def reverse(
    network: nn.Module, description: ModelDescription, remainder_bits: int
) -> tuple[nn.Module, ModelDescription]:
    """The reversible network with the weights of ``network``, in eval mode, and its description.

    Thresholds are left out, which are of the scores of the other.

    Args:
        network: a ResNet, as ``read_release`` gives it.
        description: of it.
        remainder_bits: of the reversible network.

    Raises:
        UserError: a network that cannot be reversed, bits that are not possible.
    """
    name = description.model["name"]
    if name not in REVERSIBLE:
        raise UserError(_refusal(str(name)))
    if ranks := description.model.get("ranks"):
        raise UserError(
            f"its layers {list_names(list(ranks))} are products of low rank; reverse the model that it was made of, "
            "and make the result smaller with `svt compress`"
        )
    model = {**description.model, "name": PREFIX + name, "remainder_bits": remainder_bits}
    turned = build_model(**model)
    turned.load_state_dict(rename(network.state_dict(), turned))
    training = {**description.training, "reversed_from": name}
    return turned.eval(), replace(description, model=model, training=training, verification={}, weights_sha256=None)


def _refusal(name: str) -> str:
    if name.startswith(PREFIX):
        return f"its network is {name}, which is reversible already; train with memory=reversible"
    if name.startswith("resnet"):
        return (
            f"its network is {name}, no stage of which has three blocks of one shape, so that nothing would be saved; "
            "train with memory=checkpoint, from it as it is"
        )
    return (
        f"its network is {name}, and only a ResNet can be reversed ({', '.join(REVERSIBLE)}); "
        "train with memory=checkpoint, from it as it is"
    )


def rename(weights: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The weights of a ResNet under the names of the reversible one, whose layers come in the same order."""
    return dict(zip(network.state_dict(), weights.values(), strict=True))
