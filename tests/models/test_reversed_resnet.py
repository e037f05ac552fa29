"""A ResNet run reversibly: the formula, the weights of the ordinary one, gradients to the bit, memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from network_material import on_meta
from reversible_material import assert_bit_equal, one_step, random_map, settle_norms
from torch import Tensor, nn

from svtoolkit.checkpoints.reversal import REVERSIBLE, rename
from svtoolkit.memory import apply_strategy
from svtoolkit.models.registry import NETWORKS
from svtoolkit.models.resnet import build_resnet
from svtoolkit.models.reversed_resnet import build_reversed_resnet
from svtoolkit.planning.network_facts import stored_facts
from svtoolkit.reversible import MomentumSequence

torch.set_num_threads(1)

SIZES = {"num_bins": 16, "embedding_dim": 8, "base_width": 2, "blocks": (3, 4, 5, 2)}
KINDS = ("basic", "bottleneck")


def pair(block: str, bits: int) -> tuple[nn.Module, nn.Module]:
    """A ResNet whose norms do something, and what it becomes."""
    torch.manual_seed(0)
    network = settle_norms(build_resnet(block=block, **SIZES))
    turned = build_reversed_resnet(block=block, remainder_bits=bits, **SIZES)
    turned.load_state_dict(rename(network.state_dict(), turned))
    return network, turned


def residual(block: nn.Module, x: Tensor) -> Tensor:
    """F of a block, layer by layer."""
    numbers = range(1, block.convolutions + 1)
    for number in numbers:
        x = getattr(block, f"bn{number}")(getattr(block, f"conv{number}")(x))
        x = F.relu(x) if number < len(numbers) else x
    return x


@pytest.mark.parametrize("bits", [0, 2])
@pytest.mark.parametrize("block", KINDS)
def test_the_network_is_its_formula(block, bits):
    network, turned = (module.double().eval() for module in pair(block, bits))
    frames = random_map(2, 20, 16, dtype=torch.float64)
    momentum = -(2.0**-bits)
    with torch.no_grad():
        x = network.stem(frames.transpose(1, 2).unsqueeze(1))
        for stage in network.stages:
            blocks = list(stage)
            alike = [each for each in blocks if len(each.shortcut) == 0]
            if len(alike) < 3:
                x = stage(x)
                continue
            x = nn.Sequential(*blocks[: len(blocks) - len(alike)])(x)
            velocity = None
            for each in alike:
                change = F.relu(x + residual(each, x)) - x
                velocity = change if velocity is None else momentum * velocity + (1 - momentum) * change
                x = x + velocity
        expected = network.embedding(network.pooling(x))
        torch.testing.assert_close(turned(frames), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("block", KINDS)
def test_with_many_bits_it_is_the_resnet_nearly(block):
    network, turned = (module.eval() for module in pair(block, 8))
    frames = random_map(2, 20, 16)
    with torch.no_grad():
        assert F.cosine_similarity(turned(frames), network(frames)).min() > 0.9999


@pytest.mark.parametrize("cast", [None, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("block", "bits"), [("basic", 4), ("bottleneck", 0), ("bottleneck", 4)])
def test_gradients_are_those_of_stored_activations_bit_for_bit(block, bits, cast):
    turned, frames = pair(block, bits)[1].train(), random_map(2, 20, 16)
    assert_bit_equal(one_step(turned, frames, "reversible", cast=cast), one_step(turned, frames, "store", cast=cast))


def test_a_replaced_layer_is_differentiated_by_autograd():
    turned, frames = pair("bottleneck", 2)[1].train(), random_map(2, 20, 16)
    for module in turned.modules():
        if type(module) is nn.BatchNorm2d:
            module.register_forward_hook(lambda module, given, found: None)
    found, stored = (one_step(turned, frames, strategy) for strategy in ("reversible", "store"))
    assert_bit_equal(found, stored)


def test_which_stages_run_with_momentum():
    lengths = [
        [len(part) for part in stage if isinstance(part, MomentumSequence)] for stage in pair("basic", 4)[1].stages
    ]
    assert lengths == [[3], [3], [4], []]
    assert [block.scale for block in pair("basic", 2)[1].stages[0][0]] == [1.0, 1.25, 1.25]
    with pytest.raises(ValueError, match="no stage has 3 blocks"):
        build_reversed_resnet(block="basic", remainder_bits=4, **{**SIZES, "blocks": (2, 2, 2, 2)})
    with pytest.raises(ValueError, match="remainder_bits is 3"):
        build_reversed_resnet(block="basic", remainder_bits=3, **SIZES)


@pytest.mark.parametrize("name", REVERSIBLE)
def test_every_weight_has_its_place(name):
    network, turned = on_meta(name), on_meta(f"reversed_{name}")
    assert turned.layers == network.layers
    for old, new in zip(network.state_dict().items(), turned.state_dict().items(), strict=True):
        assert (new[0].rsplit(".", 2)[-2:], new[1].shape) == (old[0].rsplit(".", 2)[-2:], old[1].shape)


def test_a_tenth_of_the_memory_is_enough():
    facts = stored_facts(200, 80)
    for name in ("resnet152", "resnet293"):
        assert 10 * facts[f"reversed_{name}"].bytes_per_utterance < facts[name].bytes_per_utterance


def test_the_rows_are_those_of_the_resnets():
    for name in REVERSIBLE:
        own, other = NETWORKS[f"reversed_{name}"].arguments, NETWORKS[name].arguments
        assert own == other


def test_auto_reverses():
    assert apply_strategy(pair("basic", 4)[1]) == "reversible"
