"""Networks for tests of their shapes."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from svtoolkit.models import SpeakerNetwork, build_model
from svtoolkit.models.registry import NETWORKS

REDIMNET2 = [(1, 1, 3, 4, 1), (2, 1, 0.75, 8, 1), (1, 1, 1, 8, 2), (2, 1, 1, 8, 1), (1, 1, 1, 8, 2), (2, 1, 1, 8, 1)]

NARROW = {
    "ecapa_tdnn_c512": {"channels": 16},
    "ecapa_tdnn_glob_c512": {"channels": 16},
    "campplus": {"blocks": ((2, 1), (3, 2), (2, 2))},
    "res2net34_base": {"width": 4, "blocks": (1, 2, 1, 2)},
    "eres2net34_base": {"width": 4, "blocks": (1, 2, 1, 2)},
    "eres2net34_aug": {"width": 8, "blocks": (1, 1, 2, 1)},
    "eres2netv2": {"width": 8, "blocks": (1, 2, 1, 2), "base_width": 32},
    "simam_resnet34": {"width": 4},
    "xvector": {"width": 16, "pooled": 24},
    "sb_ecapa_tdnn": {"base_width": 16},
    "sb_xvector": {"base_width": 16},
    "sb_resnet": {"base_width": 4, "blocks": (1, 2, 1, 2)},
    "titanet_small": {"base_width": 16, "map_channels": 24},
    "speakernet": {"base_width": 16, "map_channels": 24},
    "repvgg_b1g2": {"widths": (8, 8, 16, 16), "blocks": (1, 2, 1, 2)},
    "repvgg_tiny_rsbb_a0": {"widths": (8, 8, 16, 16), "blocks": (1, 2, 1, 2)},
    "repvgg_d2se": {"widths": (8, 8, 16, 16), "blocks": (1, 2, 1, 2)},
    "redimnet_b0": {"channels": 4, "stages": ((1, 1, 1, None), (2, 1, 2, 8), (2, 1, 3, 4))},
    "redimnet_b1": {"channels": 8, "stages": ((1, 1, 1, None), (2, 1, 1, 8))},
    "redimnet_b5": {"channels": 16, "stages": ((1, 1, 1, None), (2, 1, 2, 8))},
    "redimnet2_b4": {"channels": 4, "stages": REDIMNET2},
    "redimnet2_b5": {"channels": 4, "stages": REDIMNET2, "out_channels": 6},
    "redimnet2_b6": {"channels": 4, "stages": REDIMNET2, "out_channels": 6},
}
"""A network of every family of convolutions beside ResNet -> what makes it narrow."""


BUILDERS = {row.target: name for name, row in reversed(NETWORKS.rows.items())}
"""Builder of networks -> the first of the names that it has in the registry, which is the smallest."""

RECOMPUTED = sorted({*NARROW} - {"ecapa_tdnn_c512", "redimnet2_b4", "redimnet2_b5", "sb_xvector"})
"""Of ``NARROW`` those that differ in what their blocks do, not in their pooling or in one argument."""


def narrow(name: str, *, num_bins: int, embedding_dim: int, **options: object) -> SpeakerNetwork:
    """A network of ``NARROW``, of few channels and, where its row allows it, few blocks."""
    arguments = {**NETWORKS[name].arguments, **NARROW[name], **options}
    return NETWORKS.load(name)(num_bins=num_bins, embedding_dim=embedding_dim, **arguments)


def is_called_reversible(name: str) -> bool:
    """Whether the name of a network of ours says that it is reversible."""
    return "revnet" in name or "revnext" in name or name.startswith("reversed_")


@cache
def on_meta(name: str, **options) -> SpeakerNetwork:
    """A network without memory, which only has shapes; whoever changes it takes a copy."""
    with torch.device("meta"):
        return build_model(name, **options)


def with_zeros(network: nn.Module) -> nn.Module:
    """A network of the meta device with zeros for weights: a small forward takes less time than one on meta."""
    network.to_empty(device="cpu")
    for tensor in network.state_dict().values():
        tensor.zero_()
    return network


def of_zeros(name: str, **options) -> nn.Module:
    """A network of the registry with zeros for weights."""
    with torch.device("meta"):
        network = build_model(name, **options)
    return with_zeros(network)


def maps_of(network: SpeakerNetwork, x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What the stem and every stage make of an input, and the embedding; in one pass, without gradients."""
    maps: list[torch.Tensor] = []
    handles = [
        part.register_forward_hook(lambda part, given, result: maps.append(result))
        for part in (network.stem, *network.stages)
    ]
    with torch.inference_mode():
        embedding = network(x)
    for handle in handles:
        handle.remove()
    return maps, embedding
