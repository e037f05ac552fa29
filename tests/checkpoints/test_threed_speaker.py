"""Families of networks against 3D-Speaker's own code: names, shapes, pooling and training.

The embeddings of its releases: test_release_parity.py.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from types import ModuleType

import pytest
import torch
from foreign_networks import assert_same_in_training, randomise, shallow_campplus, undrawn
from network_material import narrow
from torch import nn

from svtoolkit.checkpoints.threed_speaker import from_3d_speaker, load_3d_speaker, to_3d_speaker
from svtoolkit.errors import UserError
from svtoolkit.models import build_model

torch.set_num_threads(1)

BINS, DIM = 8, 8
SHORT = {"num_blocks": [1, 2, 1, 2]}

SMALL = {
    "campplus": ("campplus.DTDNN", "CAMPPlus", {"memory_efficient": False}, {"pooling_eps": 0}),
    "res2net34_base": ("res2net.Res2Net", "Res2Net", {**SHORT, "m_channels": 4}, {"pooling_eps": 1e-8}),
    "eres2net34_base": ("eres2net.ERes2Net", "ERes2Net", {**SHORT, "m_channels": 4}, {"pooling_eps": 1e-8}),
    "eres2netv2": ("eres2net.ERes2NetV2", "ERes2NetV2", {**SHORT, "m_channels": 8, "baseWidth": 32}, {}),
    "sb_ecapa_tdnn": ("ecapa_tdnn.ECAPA_TDNN", "ECAPA_TDNN", {"channels": [16, 16, 16, 16, 48]}, {}),
}
"""Our name -> their module, constructor and arguments for the narrow network of ours, and our settings."""

PUBLISHED = {
    "campplus": ("campplus.DTDNN", "CAMPPlus", {}, 192, 6.849),
    "resnet34": ("resnet.ResNet", "ResNet", {"two_emb_layer": False}, 256, 6.634),
    "eres2net34_base": ("eres2net.ERes2Net", "ERes2Net", {"m_channels": 32}, 192, 6.611),
    "eres2net34_large": ("eres2net.ERes2Net", "ERes2Net", {"m_channels": 64}, 512, 29.017),
    "eres2net34_aug": ("eres2net.ERes2Net_huge", "ERes2Net", {}, 192, 55.165),
    "eres2netv2": ("eres2net.ERes2NetV2", "ERes2NetV2", {}, 192, 17.86),
    "eres2netv2_w24s4ep4": (
        "eres2net.ERes2NetV2",
        "ERes2NetV2",
        {"baseWidth": 24, "scale": 4, "expansion": 4},
        192,
        53.514,
    ),
    "sb_ecapa_tdnn": ("ecapa_tdnn.ECAPA_TDNN", "ECAPA_TDNN", {"channels": [1024] * 4 + [3072]}, 192, 20.768),
}
"""Our name -> their module, constructor and arguments, embedding_dim, millions of parameters."""


def module_of(name: str) -> ModuleType:
    pytest.importorskip("speakerlab", reason="3D-Speaker is not installed: scripts/setup.sh --extras dev")
    return importlib.import_module(f"speakerlab.models.{name}")


def theirs_of(module: str, constructor: str, num_bins: int, embedding_dim: int, arguments: dict) -> nn.Module:
    found = module_of(module)
    sizes = ("input_size", "lin_neurons") if constructor == "ECAPA_TDNN" else ("feat_dim", "embedding_size")
    return getattr(found, constructor)(**dict(zip(sizes, (num_bins, embedding_dim), strict=True)), **arguments)


@pytest.fixture(params=SMALL)
def pair(request) -> tuple[nn.Module, nn.Module]:
    """Ours with the weights of theirs, and theirs."""
    torch.manual_seed(1)
    module, constructor, arguments, settings = SMALL[request.param]
    with shallow_campplus(module_of(module)) if request.param == "campplus" else nullcontext():
        theirs = randomise(theirs_of(module, constructor, BINS, DIM, arguments))
    ours = narrow(request.param, num_bins=BINS, embedding_dim=DIM, **settings)
    load_3d_speaker(ours, theirs.state_dict())
    return ours, theirs


def test_equal_embeddings_and_statistics_in_training(pair):
    assert_same_in_training(*pair, BINS, to_3d_speaker)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_networks_have_its_names_and_shapes(name):
    module, constructor, arguments, embedding_dim, millions = PUBLISHED[name]
    with torch.device("meta"), undrawn():
        theirs = theirs_of(module, constructor, 80, embedding_dim, arguments)
        ours = build_model(name, embedding_dim=embedding_dim)
    shapes = {key: tensor.shape for key, tensor in theirs.state_dict().items()}
    assert {key: tensor.shape for key, tensor in to_3d_speaker(ours.state_dict()).items()} == shapes
    assert {key: tensor.shape for key, tensor in from_3d_speaker(theirs.state_dict()).items()} == {
        key: tensor.shape for key, tensor in ours.state_dict().items()
    }
    assert round(sum(parameter.numel() for parameter in ours.parameters()) / 1e6, 3) == millions


def test_wespeakers_epsilon_gives_other_embeddings_of_the_same_weights():
    """Where a channel hardly varies: the epsilon is part of the model."""
    torch.manual_seed(3)
    networks = [narrow("campplus", num_bins=BINS, embedding_dim=DIM, pooling_eps=eps).eval() for eps in (0, 1e-7)]
    randomise(networks[0])
    networks[1].load_state_dict(networks[0].state_dict())
    maps = torch.zeros(1, networks[0].embedding.linear.in_channels // 2, 9)
    with torch.no_grad():
        deviations = [network.pooling(maps).chunk(2, dim=1)[1] for network in networks]
    assert deviations[0].eq(0).all()
    torch.testing.assert_close(deviations[1], torch.full_like(deviations[1], 1e-7).sqrt())


def test_a_negative_epsilon_is_refused():
    with pytest.raises(UserError, match=r"^network campplus: pooling_eps is -1e-08, expected 0 or more$"):
        build_model("campplus", pooling_eps=-1e-8)


def test_names_that_it_does_not_have():
    weights = to_3d_speaker(narrow("eres2netv2", num_bins=BINS, embedding_dim=DIM).state_dict())
    with pytest.raises(
        UserError, match=r"^'layer3\.0\.conv2_1\.weight' is not a weight of a 3D-Speaker ERes2NetV2 with"
    ):
        from_3d_speaker({**weights, "layer3.0.conv2_1.weight": torch.zeros(1)})
