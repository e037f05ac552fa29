"""RepVGG after training: one convolution for the branches of a block, with the same result."""

from __future__ import annotations

import pytest
import torch
from foreign_networks import assert_same_embeddings, randomise
from network_material import NARROW, narrow

from svtoolkit.checkpoints.wespeaker import load_wespeaker, to_wespeaker
from svtoolkit.compression.layers import LowRank
from svtoolkit.models import build_model
from svtoolkit.models.registry import NETWORKS
from svtoolkit.models.repvgg import RepVggBlock, build_repvgg, deploy, for_inference

torch.set_num_threads(1)

NAMES = [name for name in NARROW if name.startswith("repvgg")]
SIZES = {"num_bins": 16, "embedding_dim": 8}


@pytest.mark.parametrize("name", NAMES)
def test_the_deployed_form_has_the_embeddings_of_the_branches(name):
    torch.manual_seed(1)
    network = randomise(narrow(name, **SIZES)).eval()
    frames = torch.randn(2, 61, 16)
    with torch.no_grad():
        expected = network(frames)
        deploy(network)
        found = network(frames)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(convolutions) == 7  # the stem and six blocks
    before = list(network.state_dict())
    deploy(network)
    assert list(network.state_dict()) == before


def test_what_the_setting_builds_takes_the_deployed_weights():
    network = build_repvgg(**SIZES, blocks=(1, 1, 1, 1), widths=(8, 8, 8, 8))
    deploy(network)
    built = build_repvgg(**SIZES, blocks=(1, 1, 1, 1), widths=(8, 8, 8, 8), deployed=True)
    built.load_state_dict(network.state_dict())
    with torch.device("meta"):
        branches, one = (build_model("repvgg_tiny_a0", deployed=deployed) for deployed in (False, True))
    assert sum(map(torch.numel, one.parameters())) < sum(map(torch.numel, branches.parameters()))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_exported_is_a_copy_with_less_to_do(name):
    torch.manual_seed(1)
    network = randomise(narrow(name, **SIZES)).eval()
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    frames = torch.randn(2, 61, 16)
    changed = for_inference(network)
    assert (changed is network) == ("rsbb" in name)  # 5x5 in the place of 3x3 and 3x3 is more
    with torch.no_grad():
        found, expected = changed(frames), network(frames)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert all(hasattr(block, "fused") == (changed is not network) for block in blocks_of(changed))
    assert for_inference(changed) is changed
    after = network.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items())


def test_blocks_of_low_rank_stay():
    torch.manual_seed(1)
    network = randomise(narrow("repvgg_d2se", **SIZES)).eval()
    first, second, *_ = blocks_of(network)
    first.dense.conv = LowRank(first.dense.conv, 1)
    second.pointwise.conv = LowRank(second.pointwise.conv, 2)
    frames = torch.randn(2, 61, 16)
    changed = for_inference(network)
    assert [hasattr(block, "fused") for block in blocks_of(changed)] == [False, False, *[True] * 5]
    with torch.no_grad():
        torch.testing.assert_close(changed(frames), network(frames), rtol=1e-4, atol=1e-4)


def blocks_of(network: torch.nn.Module) -> list[RepVggBlock]:
    return [module for module in network.modules() if isinstance(module, RepVggBlock)]


@pytest.mark.parametrize("name", NAMES)
def test_the_deployed_form_of_wespeaker(wespeaker, name):
    """Theirs, converted by their code, is ours, converted by ours."""
    torch.manual_seed(2)
    module = wespeaker("models.repvgg")
    groups = NETWORKS[name].arguments.get("groups", 1)
    theirs = module.RepVGG(
        num_blocks=[1, 2, 1, 2],
        strides=[1, 1, 2, 2, 2],
        width_multiplier=[8 / 64, 8 / 128, 16 / 256, 16 / 512],
        block="RepSPK" if "rsbb" in name else "RepVGG",
        override_groups_map=dict.fromkeys((2, 4, 6), groups),
        use_se="d2se" in name,
        pooling_func="TSTP",
        feat_dim=16,
        embed_dim=8,
    )
    randomise(theirs).eval()
    ours = narrow(name, **SIZES).eval()
    load_wespeaker(ours, theirs.state_dict())
    deploy(ours)
    converted = module.repvgg_model_convert(theirs)
    found, expected = to_wespeaker(ours.state_dict()), converted.state_dict()
    assert set(found) == set(expected)
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-5, atol=1e-6)
    again = build_repvgg(**SIZES, **{**NETWORKS[name].arguments, **NARROW[name]}, deployed=True).eval()
    load_wespeaker(again, expected)
    assert_same_embeddings(again, converted, torch.randn(2, 61, 16))
