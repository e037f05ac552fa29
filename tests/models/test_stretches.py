"""Long recordings in stretches: the embedding is that of the whole, for every family of networks."""

from __future__ import annotations

import pytest
import torch
from foreign_networks import randomise
from network_material import NARROW, narrow

from svtoolkit.models.registry import NETWORKS
from svtoolkit.models.stretches import TimeGeometry, embed_in_stretches, time_geometry

torch.set_num_threads(1)

BINS = 24
FAMILIES = ["resnet10", "resnet50", "gemini_df_resnet60", "df_resnet56", "revnet57", "df_revnet89", "revnext57"]
FAMILIES += ["res2net34_base", "eres2net34_base", "eres2netv2", "xvector", "sb_xvector", "repvgg_b1g2", "speakernet"]
LOOK_AT_ALL = ["ecapa_tdnn_c512", "campplus", "simam_resnet34", "repvgg_d2se", "redimnet_b0", "redimnet2_b5"]
LOOK_AT_ALL += ["sb_ecapa_tdnn", "sb_resnet", "titanet_small"]


def network_of(name):
    """Of few channels, and but for ResNet10 and RevNet57 of few blocks, which the context grows with; with statistics
    of a trained network, not those of a fresh one.
    """
    torch.manual_seed(1)
    if name in NARROW:
        return randomise(narrow(name, num_bins=BINS, embedding_dim=16)).eval()
    few = {"channels": (16, 32, 64, 100)} if "revnet" in name else {"base_width": 8} if "resnet50" in name else {}
    few |= {"width": 8, "slope": 0.1, "norm_floor": 0.1} if "revnext" in name else {}
    few |= {} if name in ("resnet10", "revnet57") else {"blocks": (1, 2, 2, 1)}
    network = NETWORKS.load(name)(num_bins=BINS, embedding_dim=16, **NETWORKS[name].arguments | few)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
            module.bias.data.normal_(0, 0.1)
    return network.eval()


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_stretches_have_the_embedding_of_the_whole(name):
    network = network_of(name)
    geometry = time_geometry(network, BINS)
    assert geometry is not None
    features = torch.randn(1, 2 * geometry.context + 173, BINS) * torch.linspace(0.1, 3, BINS)
    whole = network(features)
    for length in (101, geometry.context):
        found = embed_in_stretches(network, features, geometry, length)
        torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-4 * float(whole.abs().max()))


@torch.inference_mode()
def test_less_context_than_that_is_too_little():
    network = network_of("resnet10")
    geometry = time_geometry(network, BINS)
    features = torch.randn(1, 300, BINS)
    found = embed_in_stretches(network, features, TimeGeometry(geometry.stride, geometry.stride), 40)
    assert (found - network(features)).abs().max() > 1e-3 * network(features).abs().max()


class LooksAtAll(torch.nn.Module):
    """Channels weighted by their mean over all frames, as squeeze-and-excitation does."""

    def forward(self, x):
        return x * torch.sigmoid(x.mean(dim=(2, 3), keepdim=True))


class Halving(torch.nn.Module):
    """Every second pair of frames: no stride that stretches could be laid by."""

    def forward(self, x):
        return torch.cat([x[..., ::4], x[..., 1::4], x[..., :7]], dim=-1)


@pytest.mark.parametrize("module", [LooksAtAll(), Halving()])
def test_a_network_that_is_not_local_has_no_geometry(module):
    network = network_of("resnet10")
    network.stages[1].append(module)
    assert time_geometry(network, BINS) is None


@pytest.mark.parametrize("name", LOOK_AT_ALL)
def test_a_family_that_looks_at_all_frames_has_none(name):
    assert time_geometry(network_of(name), BINS) is None


def test_a_network_of_another_kind_has_no_geometry():
    class OwnPooling(type(network_of("resnet10").pooling)):
        """A pooling whose statistics may be others."""

    network = network_of("resnet10")
    network.pooling = OwnPooling()
    assert time_geometry(network, BINS) is None
    assert time_geometry(torch.nn.Linear(BINS, 3), BINS) is None
