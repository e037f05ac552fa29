"""Families of networks against WeSpeaker's own code: its weights under our names, the same embeddings."""

from __future__ import annotations

import pytest
import torch
from foreign_networks import assert_same_embeddings, randomise
from network_material import narrow
from torch import nn

from svtoolkit.checkpoints.wespeaker import from_wespeaker, load_wespeaker, to_wespeaker
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.ecapa_tdnn import EcapaTdnn

torch.set_num_threads(1)

BINS, DIM = 8, 8


SMALL: dict[str, tuple[str, str, dict[str, object]]] = {
    "ecapa_tdnn_c512": ("ecapa_tdnn", "ECAPA_TDNN", {"channels": 16}),
    "ecapa_tdnn_glob_c512": ("ecapa_tdnn", "ECAPA_TDNN", {"channels": 16, "global_context_att": True}),
    "campplus": ("campplus", "CAMPPlus", {}),
    "res2net34_base": ("res2net", "Res2Net", {"m_channels": 4, "num_blocks": [1, 2, 1, 2]}),
    "eres2net34_base": ("eres2net", "ERes2Net", {"m_channels": 4, "num_blocks": [1, 2, 1, 2]}),
    "eres2net34_aug": (
        "eres2net",
        "ERes2Net",
        {"m_channels": 8, "num_blocks": [1, 1, 2, 1], "baseWidth": 24, "scale": 3, "expansion": 4},
    ),
}
"""Our name -> their module, constructor and arguments for the narrow network of ours."""

PUBLISHED = {
    "ecapa_tdnn_c512": ("ecapa_tdnn", "ECAPA_TDNN_c512", 192, None),
    "ecapa_tdnn_c1024": ("ecapa_tdnn", "ECAPA_TDNN_c1024", 192, None),
    "ecapa_tdnn_glob_c512": ("ecapa_tdnn", "ECAPA_TDNN_GLOB_c512", 192, 6.191),
    "ecapa_tdnn_glob_c1024": ("ecapa_tdnn", "ECAPA_TDNN_GLOB_c1024", 192, 14.657),
    "campplus": ("campplus", "CAMPPlus", 512, 7.176),
    "res2net34_base": ("res2net", "Res2Net34_Base", 256, 4.689),
    "res2net34_large": ("res2net", "Res2Net34_Large", 256, None),
    "eres2net34_base": ("eres2net", "ERes2Net34_Base", 512, 9.888),
    "eres2net34_large": ("eres2net", "ERes2Net34_Large", 512, 29.017),
    "eres2net34_aug": ("eres2net", "ERes2Net34_aug", 192, 55.165),
}
"""Our name -> their module and constructor, embedding_dim, millions of parameters."""


@pytest.fixture(params=SMALL)
def pair(request, wespeaker) -> tuple[nn.Module, nn.Module]:
    """Ours with the weights of theirs, and theirs."""
    torch.manual_seed(1)
    module, constructor, arguments = SMALL[request.param]
    theirs = getattr(wespeaker(f"models.{module}"), constructor)(feat_dim=BINS, embed_dim=DIM, **arguments)
    ours = narrow(request.param, num_bins=BINS, embedding_dim=DIM)
    randomise(theirs)
    load_wespeaker(ours, theirs.state_dict())
    return ours, theirs


def test_equal_embeddings(pair):
    ours, theirs = (network.eval() for network in pair)
    for batch, frames in ((1, 58), (3, 58), (1, 315), (3, 315), (1, 1998)):
        assert_same_embeddings(ours, theirs, torch.randn(batch, frames, BINS))


def test_equal_embeddings_and_statistics_in_training(pair):
    ours, theirs = (network.train() for network in pair)
    assert_same_embeddings(ours, theirs, torch.randn(3, 58, BINS))
    after = to_wespeaker(ours.state_dict())
    assert set(after) == set(theirs.state_dict())
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(after[name], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_networks_have_its_names_and_shapes(wespeaker, name):
    module, constructor, embedding_dim, millions = PUBLISHED[name]
    with torch.device("meta"):
        theirs = getattr(wespeaker(f"models.{module}"), constructor)(feat_dim=80, embed_dim=embedding_dim)
        ours = build_model(name, embedding_dim=embedding_dim)
    shapes = {key: tensor.shape for key, tensor in theirs.state_dict().items()}
    assert {key: tensor.shape for key, tensor in to_wespeaker(ours.state_dict()).items()} == shapes
    assert {key: tensor.shape for key, tensor in from_wespeaker(theirs.state_dict()).items()} == {
        key: tensor.shape for key, tensor in ours.state_dict().items()
    }
    count = sum(parameter.numel() for parameter in ours.parameters())
    assert count == sum(parameter.numel() for parameter in theirs.parameters())
    assert millions is None or round(count / 1e6, 3) == millions


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_networks_have_its_embeddings(wespeaker, name):
    module, constructor, embedding_dim, _ = PUBLISHED[name]
    torch.manual_seed(2)
    theirs = randomise(getattr(wespeaker(f"models.{module}"), constructor)(feat_dim=80, embed_dim=embedding_dim))
    ours = build_model(name, embedding_dim=embedding_dim)
    load_wespeaker(ours, theirs.state_dict())
    assert_same_embeddings(ours.eval(), theirs.eval(), torch.randn(2, 131, 80))


def weights() -> dict[str, torch.Tensor]:
    return to_wespeaker(EcapaTdnn(num_bins=BINS, embedding_dim=DIM, channels=16).state_dict())


def test_all_that_is_unexpected_is_listed():
    extra = {f"extra.{number}": torch.zeros(1) for number in range(8)}
    with pytest.raises(UserError) as caught:
        from_wespeaker({**weights(), **extra})
    assert str(caught.value) == (
        "'extra.0', 'extra.1', 'extra.2', 'extra.3', 'extra.4', 'extra.5' and 2 more are not weights of a WeSpeaker "
        "ECAPA-TDNN; expected layer1 to layer4, conv, pool, bn and linear"
    )


def test_parts_that_are_missing_are_listed():
    found = {name: tensor for name, tensor in weights().items() if not name.startswith(("pool.", "bn."))}
    with pytest.raises(UserError, match=r"ECAPA-TDNN has weights 'pool\.\*', 'bn\.\*', and there are none here"):
        from_wespeaker(found)


def test_weights_that_do_not_fit_the_network_are_listed_and_it_stays_as_it_was():
    network = EcapaTdnn(num_bins=BINS, embedding_dim=DIM, channels=16)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    found = weights()
    del found["layer2.se_res2block.1.convs.3.bias"]
    found["layer3.se_res2block.1.convs.7.bias"] = torch.zeros(1)
    found["linear.weight"] = torch.zeros(9, 3072)
    with pytest.raises(UserError) as caught:
        load_wespeaker(network, found)
    assert str(caught.value) == (
        "the weights are those of another network (under our names): there is no 'stages.0.1.convs.3.bias'; the "
        "network has no 'stages.1.1.convs.7.bias'; 'embedding.1.weight' is (9, 3072) where the network has (8, 3072); "
        "build the network that the config.yaml beside them describes"
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
