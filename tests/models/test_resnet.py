"""ResNets: published sizes, shapes in and out, and what happens to odd inputs."""

from __future__ import annotations

import pytest
import torch
from network_material import maps_of, of_zeros, on_meta
from torch import nn

from svtoolkit.models import SpeakerNetwork, build_model
from svtoolkit.models.blocks import BasicBlock, Bottleneck
from svtoolkit.models.registry import NETWORKS

torch.set_num_threads(1)

# name: parameters, entries of the state dict, inputs of the embedding layer, published millions of parameters
SIZES = {
    "resnet10": (635_184, 74, 1_280, None),
    "resnet18": (4_105_440, 122, 5_120, 4.11),
    "resnet34": (6_634_336, 218, 5_120, 6.63),
    "resnet50": (11_131_360, 320, 20_480, 11.13),
    "resnet101": (15_892_448, 626, 20_480, 15.89),
    "resnet152": (19_814_880, 932, 20_480, 19.81),
    "resnet221": (23_792_224, 1_346, 20_480, 23.79),
    "resnet293": (28_626_016, 1_778, 20_480, 28.63),
}


def small(**options) -> SpeakerNetwork:
    torch.manual_seed(0)
    return build_model("resnet10", **{"base_width": 4, "embedding_dim": 16, **options})


def test_every_network_has_its_sizes_pinned():
    assert set(SIZES) == {name for name, row in NETWORKS.items() if row.help == "ResNet"}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    parameters, entries, pooled, published = SIZES[name]
    network = on_meta(name)
    counted = sum(parameter.numel() for parameter in network.parameters())
    assert counted == parameters
    assert published is None or f"{counted / 1e6:.2f}" == f"{published:.2f}"
    assert len(network.state_dict()) == entries
    assert network.embedding.in_features == pooled


@pytest.mark.parametrize("name", SIZES)
def test_a_name_counts_the_layers(name):
    """Convolutions of the main path and the last Linear; shortcuts are not counted."""
    network = on_meta(name)
    layers = [
        path
        for path, module in network.named_modules()
        if isinstance(module, (nn.Conv2d, nn.Linear)) and "shortcut" not in path
    ]
    assert len(layers) == network.layers == int(name.removeprefix("resnet"))


def test_parameters_counted_from_the_layout():
    """ResNet34 by hand: 3x3 convolutions, two numbers a BatchNorm channel, shortcuts, the Linear."""
    widths, blocks = (32, 64, 128, 256), (3, 4, 6, 3)
    count, channels = 9 * 32 + 2 * 32, 32
    for width, number in zip(widths, blocks, strict=True):
        count += 9 * channels * width + 9 * width * width + 4 * width
        count += (number - 1) * (2 * 9 * width * width + 4 * width)
        if channels != width:
            count += channels * width + 2 * width
        channels = width
    assert count + (2 * 256 * 10 + 1) * 256 == SIZES["resnet34"][0]


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("frames", [1, 7, 8, 41])
def test_strides_and_shapes(name, frames):
    network = of_zeros(name)
    (stem, *maps), embedding = maps_of(network, torch.zeros(3, frames, 80))
    expected = [(1, 80, frames), (1, 80, frames)]
    for factor in (2, 4, 8):
        expected.append((factor, 80 // factor, -(-frames // factor)))
    expansion = 1 if name == "resnet18" else 4
    assert stem.shape == (3, 32, 80, frames)
    for feature_map, (factor, bins, length) in zip(maps, expected[1:], strict=True):
        assert feature_map.shape == (3, 32 * factor * expansion, bins, length)
    assert embedding.shape == (3, 256)


def test_the_narrow_stem_halves_the_frequency_axis_only():
    feature_map = on_meta("resnet10").stem(torch.empty(2, 1, 80, 200, device="meta"))
    assert feature_map.shape == (2, 16, 40, 200)


@pytest.mark.parametrize("num_bins", [1, 5, 23, 40, 64, 80, 81])
@pytest.mark.parametrize("name", ["resnet10", "resnet50"])
def test_any_number_of_bins(name, num_bins):
    network = of_zeros(name, num_bins=num_bins, embedding_dim=32)
    assert network(torch.zeros(2, 30, num_bins)).shape == (2, 32)


@pytest.mark.parametrize("name", ["resnet10", "resnet18", "resnet50"])
def test_base_width_sets_the_channels_of_every_stage(name):
    network = on_meta(name, base_width=6)
    assert network.stem[0].out_channels == 6
    for index, stage in enumerate(network.stages):
        assert stage[-1].conv1.out_channels == 6 * 2**index


def test_base_width_none_is_the_published_one():
    assert on_meta("resnet34", base_width=None).stem[0].out_channels == 32


@pytest.mark.parametrize("training", [True, False])
def test_one_frame_after_the_strides_gives_finite_embeddings_and_gradients(training):
    network = small().train(training)
    frames = torch.randn(2, 8, 80, requires_grad=True)
    embedding = network(frames)
    embedding.square().sum().backward()
    assert embedding.shape == (2, 16)
    assert embedding.isfinite().all()
    for tensor in (frames, *network.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_every_parameter_learns():
    network = small()
    network(torch.randn(3, 40, 80)).square().sum().backward()
    still = [name for name, parameter in network.named_parameters() if not parameter.grad.abs().sum() > 0]
    assert still == []


def test_an_embedding_does_not_depend_on_its_batch_in_eval_mode():
    network = small().eval()
    frames = torch.randn(4, 30, 80)
    with torch.no_grad():
        together, alone = network(frames), torch.cat([network(row[None]) for row in frames])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)


def test_channels_last_changes_the_layout_and_not_the_numbers():
    network, frames = small().eval(), torch.randn(2, 30, 80)
    with torch.no_grad():
        plain = network(frames)
        torch.testing.assert_close(network.to(memory_format=torch.channels_last)(frames), plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("block", "in_channels", "stride"), [(BasicBlock, 6, 1), (Bottleneck, 24, 1)])
def test_a_block_that_keeps_the_shape_has_an_empty_shortcut(block, in_channels, stride):
    assert len(block(in_channels, 6, stride).shortcut) == 0


@pytest.mark.parametrize(
    ("block", "in_channels", "stride"),
    [(BasicBlock, 6, 2), (BasicBlock, 5, 1), (Bottleneck, 6, 1), (Bottleneck, 24, 2)],
)
def test_a_block_that_changes_the_shape_projects_its_input(block, in_channels, stride):
    made = block(in_channels, 6, stride)
    assert [type(layer) for layer in made.shortcut] == [nn.Conv2d, nn.BatchNorm2d]
    assert made(torch.randn(2, in_channels, 9, 7)).shape == (2, 6 * block.expansion, -(-9 // stride), -(-7 // stride))


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_a_block_adds_its_input(block):
    """With a last BatchNorm of zeros the residual branch is silent, and relu(x) remains."""
    made = block(6 * block.expansion, 6)
    last = made.bn2 if block is BasicBlock else made.bn3
    nn.init.zeros_(last.weight)
    x = torch.randn(2, 6 * block.expansion, 4, 5)
    assert torch.equal(made(x), x.relu())
