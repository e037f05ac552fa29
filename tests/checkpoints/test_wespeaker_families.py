"""Families of networks against WeSpeaker's own code: its weights under our names, the same embeddings."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from foreign_networks import (
    assert_same_embeddings,
    assert_same_in_training,
    assert_same_of_all_lengths,
    randomise,
    shallow_campplus,
    undrawn,
)
from network_material import NARROW, narrow
from torch import nn

from svtoolkit.checkpoints.wespeaker import from_wespeaker, load_wespeaker, to_wespeaker
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.ecapa_tdnn import EcapaTdnn
from svtoolkit.models.registry import NETWORKS

torch.set_num_threads(1)

BINS, DIM = 8, 8


REPVGG = {
    "num_blocks": [1, 2, 1, 2],
    "strides": [1, 1, 2, 2, 2],
    "width_multiplier": [8 / 64, 8 / 128, 16 / 256, 16 / 512],
    "pooling_func": "TSTP",
}


def redimnet_setup(name: str) -> list[tuple[object, ...]]:
    """The stages of a narrow network as theirs are written."""
    setup = []
    for stride, blocks, expansion, reduction, *time in NARROW[name]["stages"]:
        setup.append(((stride, *time) if time else stride, blocks, expansion, [(3, 3)], reduction))
    return setup


REDIMNET2 = {"C": 4, "stages_setup": redimnet_setup("redimnet2_b4")}
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
    "simam_resnet34": ("samresnet", "SimAM_ResNet34_ASP", {"in_planes": 4, "acoustic_dim": BINS}),
    "xvector": ("tdnn", "XVEC", {"hid_dim": 16, "stats_dim": 24}),
    "repvgg_b1g2": ("repvgg", "RepVGG", {**REPVGG, "override_groups_map": {2: 2, 4: 2, 6: 2}}),
    "repvgg_tiny_rsbb_a0": ("repvgg", "RepVGG", {**REPVGG, "block": "RepSPK"}),
    "repvgg_d2se": ("repvgg", "RepVGG", {**REPVGG, "override_groups_map": {2: 4, 4: 4, 6: 4}, "use_se": True}),
    "redimnet_b0": (
        "redimnet",
        "ReDimNet",
        {"C": 4, "group_divisor": 1, "stages_setup": redimnet_setup("redimnet_b0")},
    ),
    "redimnet_b1": (
        "redimnet",
        "ReDimNet",
        {"C": 8, "block_2d_type": "convnext_like", "group_divisor": 8, "stages_setup": redimnet_setup("redimnet_b1")},
    ),
    "redimnet_b5": (
        "redimnet",
        "ReDimNet",
        {
            "C": 16,
            "block_2d_type": "basic_resnet_fwse",
            "group_divisor": 16,
            "stages_setup": redimnet_setup("redimnet_b5"),
        },
    ),
    "redimnet2_b4": ("redimnet2", "ReDimNet2Wrap", REDIMNET2),
    "redimnet2_b5": ("redimnet2", "ReDimNet2Wrap", {**REDIMNET2, "out_channels": 6}),
    "redimnet2_b6": ("redimnet2", "ReDimNet2Wrap", {**REDIMNET2, "out_channels": 6, "return_2d_output": True}),
}
"""Our name -> their module, constructor and arguments for the narrow network of ours."""

PUBLISHED = {
    "ecapa_tdnn_glob_c512": ("ecapa_tdnn", "ECAPA_TDNN_GLOB_c512", 192, 6.191),
    "ecapa_tdnn_glob_c1024": ("ecapa_tdnn", "ECAPA_TDNN_GLOB_c1024", 192, 14.657),
    "campplus": ("campplus", "CAMPPlus", 512, 7.176),
    "res2net34_base": ("res2net", "Res2Net34_Base", 256, 4.689),
    "eres2net34_base": ("eres2net", "ERes2Net34_Base", 512, 9.888),
    "eres2net34_large": ("eres2net", "ERes2Net34_Large", 512, 29.017),
    "eres2net34_aug": ("eres2net", "ERes2Net34_aug", 192, 55.165),
    "simam_resnet34": ("samresnet", "SimAM_ResNet34_ASP", 256, 25.214),
    "simam_resnet100": ("samresnet", "SimAM_ResNet100_ASP", 256, 50.233),
    "xvector": ("tdnn", "XVEC", 512, 4.611),
    "repvgg_tiny_a0": ("repvgg", "REPVGG_TINY_A0", 256, 6.834),
    "redimnet_b0": ("redimnet", "ReDimNetB0", 192, 1.002),
    "redimnet_b2": ("redimnet", "ReDimNetB2", 192, 4.888),
    "redimnet_b6": ("redimnet", "ReDimNetB6", 192, 15.006),
    "redimnet2_b0": ("redimnet2", "ReDimNet2B0", 192, 0.703),
    "redimnet2_b3": ("redimnet2", "ReDimNet2B3", 192, 2.365),
    "redimnet2_b6": ("redimnet2", "ReDimNet2B6", 192, 12.395),
}
"""Our name -> their module and constructor, embedding_dim, millions of parameters."""
WHOLE = ("redimnet_b0", "redimnet2_b0")
"""As published, with embeddings; the others differ from narrow networks in sizes alone, see test_release_parity.py."""


def of_frames_and_bins(network: nn.Module) -> nn.Module:
    """Theirs with (batch, frames, bins) as input, where it takes (batch, bins, frames)."""
    if type(network).__name__ == "ReDimNet2Wrap":
        network.register_forward_pre_hook(lambda module, given: (given[0].transpose(1, 2),))
    return network


@pytest.fixture(params=SMALL)
def pair(request, wespeaker) -> tuple[nn.Module, nn.Module]:
    """Ours with the weights of theirs, and theirs."""
    torch.manual_seed(1)
    module, constructor, arguments = SMALL[request.param]
    sizes = {"feat_dim": BINS} if "acoustic_dim" not in arguments else {}
    found = wespeaker(f"models.{module}")
    with shallow_campplus(found) if request.param == "campplus" else nullcontext():
        theirs = of_frames_and_bins(getattr(found, constructor)(embed_dim=DIM, **sizes, **arguments))
    ours = narrow(request.param, num_bins=BINS, embedding_dim=DIM)
    randomise(theirs)
    load_wespeaker(ours, theirs.state_dict())
    return ours, theirs


def bins_of(name: str) -> int:
    """Of the input of a published network."""
    return {"redimnet_b0": 60}.get(name, 72) if name.startswith("redimnet") else 80


def published(wespeaker, name: str) -> nn.Module:
    """A network of theirs."""
    module, constructor, embedding_dim, _ = PUBLISHED[name]
    sizes = {} if name.startswith("simam") else {"feat_dim": bins_of(name)}
    return of_frames_and_bins(getattr(wespeaker(f"models.{module}"), constructor)(embed_dim=embedding_dim, **sizes))


@pytest.mark.parametrize("pair", ["redimnet_b0", "redimnet_b1", "redimnet_b5", "redimnet2_b6"], indirect=True)
def test_equal_embeddings(pair):
    """Those of the other families: test_release_parity.py; of other settings of these: test_redimnet_releases.py."""
    assert_same_of_all_lengths(*pair, BINS)


def test_equal_embeddings_and_statistics_in_training(pair):
    assert_same_in_training(*pair, BINS, to_wespeaker)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_networks_have_its_names_and_shapes(wespeaker, name):
    *_, embedding_dim, millions = PUBLISHED[name]
    with torch.device("meta"), undrawn():
        theirs = published(wespeaker, name)
        ours = build_model(name, num_bins=bins_of(name), embedding_dim=embedding_dim)
    shapes = {key: tensor.shape for key, tensor in theirs.state_dict().items()}
    assert {key: tensor.shape for key, tensor in to_wespeaker(ours.state_dict()).items()} == shapes
    count = sum(parameter.numel() for parameter in ours.parameters())
    assert count == sum(parameter.numel() for parameter in theirs.parameters())
    assert round(count / 1e6, 3) == millions


@pytest.mark.parametrize(
    "name", [name for name in NETWORKS.rows if name.startswith(("repvgg", "redimnet_b", "redimnet2_b"))]
)
def test_rows_of_many_sizes_are_its_own(wespeaker, monkeypatch, name):
    """What each of its constructors says to the class, and each of our rows to the builder."""
    family, _, size = name.partition("_")
    module = wespeaker(f"models.{family}")
    built = {"repvgg": "RepVGG", "redimnet": "ReDimNet", "redimnet2": "ReDimNet2Wrap"}[family]
    constructors = {each.lower(): each for each in dir(module)}
    constructor = getattr(module, constructors[name if family == "repvgg" else family + size])
    monkeypatch.setattr(module, built, lambda **said: said)
    said, ours = constructor(feat_dim=72, embed_dim=8), NETWORKS[name].arguments
    if family == "repvgg":
        widths = [int(64 * 2**stage * factor) for stage, factor in enumerate(said["width_multiplier"])]
        assert (list(ours["blocks"]), list(ours["widths"])) == (said["num_blocks"], widths)
        groups = ours.get("groups", 1)
        assert said["override_groups_map"] == (None if groups == 1 else dict.fromkeys(range(2, 27, 2), groups))
        assert (said["use_se"], said.get("block")) == (
            ours.get("excited", False),
            "RepSPK" if ours.get("dilated") else None,
        )
        return
    kinds = {"convnext": "convnext_like", "basic": "basic_resnet", "excited": "basic_resnet_fwse"}
    expected = [(stride, *rest, reduction) for stride, *rest, kernels, reduction in said["stages_setup"]]
    if family == "redimnet":
        assert [*ours["stages"]] == expected
        assert kinds[ours["kind"]] == said["block_2d_type"]
        assert ours["group_width"] == said["group_divisor"]
    else:
        assert [([stride, time], *rest) for stride, *rest, time in ours["stages"]] == expected
        assert (ours["out_channels"], ours["pool_map"]) == (
            said.get("out_channels"),
            said.get("return_2d_output", False),
        )
    assert ours["channels"] == said["C"]


@pytest.mark.parametrize("name", WHOLE)
def test_the_published_networks_have_its_embeddings(wespeaker, name):
    embedding_dim = PUBLISHED[name][2]
    torch.manual_seed(2)
    theirs = randomise(published(wespeaker, name))
    ours = build_model(name, num_bins=bins_of(name), embedding_dim=embedding_dim)
    load_wespeaker(ours, theirs.state_dict())
    assert_same_embeddings(ours.eval(), theirs.eval(), torch.randn(1, 61, bins_of(name)))


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


@pytest.mark.parametrize("rename", [from_wespeaker, to_wespeaker])
def test_weights_of_something_else(rename):
    with pytest.raises(UserError, match=r"^there are no weights; "):
        rename({})
    with pytest.raises(UserError, match=r"^'encoder\.w' is not a weight of a WeSpeaker .*, the nearest family; "):
        rename({"encoder.w": torch.zeros(1)})


def test_a_network_of_which_wespeaker_has_no_part():
    found = narrow("eres2netv2", num_bins=BINS, embedding_dim=DIM).state_dict()
    expected = (
        r"^a WeSpeaker ERes2Net with one embedding layer has weights 'downsamplings\.1\.\*', .* and there are none"
    )
    with pytest.raises(UserError, match=expected):
        to_wespeaker(found)


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
        "build the network that the settings beside them describe"
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
