"""DF-ResNet and Gemini-DF-ResNet: published sizes, shapes in and out, and the block of both."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from network_material import maps_of, on_meta, with_zeros
from torch import nn

from svtoolkit.models import SpeakerNetwork
from svtoolkit.models.blocks import DFBottleneck
from svtoolkit.models.df_resnet import build_df_resnet
from svtoolkit.models.registry import NETWORKS

torch.set_num_threads(1)

# name: parameters, entries of the state dict, inputs of the embedding layer, published layout's millions of parameters
SIZES = {
    "df_resnet56": (4_693_920, 350, 5_120, 4.69),
    "df_resnet110": (7_177_632, 674, 5_120, 7.18),
    "df_resnet179": (9_842_464, 1_088, 5_120, 9.84),
    "df_resnet233": (12_326_176, 1_412, 5_120, 12.33),
    "gemini_df_resnet60": (4_047_840, 356, 2_560, 4.05),
    "gemini_df_resnet114": (6_531_552, 680, 2_560, 6.53),
    "gemini_df_resnet183": (9_196_384, 1_094, 2_560, 9.20),
    "gemini_df_resnet237": (11_680_096, 1_418, 2_560, 11.68),
}
# (frequency, time) of a stage's map as a fraction of the input, and its channels
MAPS = {
    "df_resnet56": [(1, 1, 32), (2, 2, 64), (4, 4, 128), (8, 8, 256)],
    "gemini_df_resnet60": [(2, 1, 32), (4, 2, 64), (8, 2, 128), (16, 2, 256)],
}
FAMILIES = list(MAPS)


def small(gemini: bool, num_bins: int = 16, embedding_dim: int = 8) -> SpeakerNetwork:
    """One block a stage: blocks keep the shape."""
    torch.manual_seed(0)
    return build_df_resnet(num_bins=num_bins, embedding_dim=embedding_dim, blocks=(1, 1, 1, 1), gemini=gemini)


def small_of_zeros(name: str, **sizes: int) -> nn.Module:
    with torch.device("meta"):
        network = small(name.startswith("gemini"), **sizes)
    return with_zeros(network)


def test_every_network_has_its_sizes_pinned():
    assert set(SIZES) == {name for name, row in NETWORKS.items() if row.help == "DF-ResNet"}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    parameters, entries, pooled, published = SIZES[name]
    network = on_meta(name)
    counted = sum(parameter.numel() for parameter in network.parameters())
    assert counted == parameters
    assert f"{counted / 1e6:.2f}" == f"{published:.2f}"
    assert len(network.state_dict()) == entries
    assert network.embedding.in_features == pooled


@pytest.mark.parametrize("name", SIZES)
def test_a_name_counts_the_layers(name):
    """Convolutions and the last Linear; Gemini counts its four downsamplings, DF-ResNet does not count its three."""
    network = on_meta(name)
    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    uncounted = 0 if name.startswith("gemini") else 3
    assert len(layers) - uncounted == network.layers == int(name.rpartition("net")[2])


@pytest.mark.parametrize(("name", "downsamplings"), [("df_resnet56", [64, 128, 256]), ("gemini_df_resnet60", None)])
def test_parameters_counted_from_the_layout(name, downsamplings):
    """By hand: two numbers a BatchNorm channel, blocks of 1x1, depthwise 3x3 and 1x1, downsamplings, the Linear."""
    count, channels = 9 * 32 + 2 * 32, 32
    for width in downsamplings or [32, 64, 128, 256]:
        count += 9 * channels * width + 2 * width
        channels = width
    for width, blocks in zip((32, 64, 128, 256), (3, 3, 9, 3), strict=True):
        hidden = 4 * width
        count += blocks * (width * hidden + 9 * hidden + hidden * width + 2 * (hidden + hidden + width))
    bins = 10 if downsamplings else 5
    assert count + (2 * 256 * bins + 1) * 256 == SIZES[name][0]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("frames", [1, 7, 40, 41])
@pytest.mark.parametrize("num_bins", [80, 23])
def test_strides_and_shapes(name, frames, num_bins):
    network = small_of_zeros(name, num_bins=num_bins, embedding_dim=192)
    (stem, *maps), embedding = maps_of(network, torch.zeros(2, frames, num_bins))
    assert stem.shape == (2, 32, num_bins, frames)
    for feature_map, (rows, columns, channels) in zip(maps, MAPS[name], strict=True):
        assert feature_map.shape == (2, channels, -(-num_bins // rows), -(-frames // columns))
    assert network.embedding.in_features == 2 * maps[-1].shape[1] * maps[-1].shape[2]
    assert embedding.shape == (2, 192)


@pytest.mark.parametrize("num_bins", [1, 5, 40, 64, 81])
@pytest.mark.parametrize("name", FAMILIES)
def test_any_number_of_bins(name, num_bins):
    network = small_of_zeros(name, num_bins=num_bins, embedding_dim=32)
    assert network.embedding.in_features == 512 * -(-num_bins // (8 if name == "df_resnet56" else 16))
    assert network(torch.zeros(2, 30, num_bins)).shape == (2, 32)


@pytest.mark.parametrize("name", SIZES)
def test_a_stage_is_its_downsampling_and_its_blocks(name):
    published = NETWORKS[name].arguments["blocks"]
    for index, (stage, blocks) in enumerate(zip(on_meta(name).stages, published, strict=True)):
        layers = list(stage)
        if index or name.startswith("gemini"):
            assert [type(layer) for layer in layers.pop(0)] == [nn.Conv2d, nn.BatchNorm2d]
        assert [type(layer) for layer in layers] == [DFBottleneck] * blocks


@pytest.mark.parametrize("gemini", [False, True])
@pytest.mark.parametrize("frames", [1, 9, 24])
def test_every_parameter_learns(gemini, frames):
    network = small(gemini)
    batch = torch.randn(3, frames, 16, requires_grad=True)
    network(batch).square().sum().backward()
    for name, parameter in [("frames", batch), *network.named_parameters()]:
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("gemini", [False, True])
def test_an_embedding_does_not_depend_on_its_batch_in_eval_mode(gemini):
    network, frames = small(gemini).eval(), torch.randn(4, 30, 16)
    with torch.no_grad():
        together, alone = network(frames), torch.cat([network(row[None]) for row in frames])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)


def test_the_block_is_its_formula():
    """1x1, BatchNorm, ReLU; depthwise 3x3, BatchNorm, ReLU; 1x1, BatchNorm; the input; ReLU. In float64."""
    torch.manual_seed(1)
    block = DFBottleneck(3).double()
    x = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    for bn in (block.bn1, block.bn2, block.bn3):
        nn.init.uniform_(bn.weight, 0.5, 1.5)
        nn.init.uniform_(bn.bias, -0.5, 0.5)

    def normalised(values: torch.Tensor, bn: nn.BatchNorm2d) -> torch.Tensor:
        centred = values - values.mean((0, 2, 3), keepdim=True)
        spread = (centred.square().mean((0, 2, 3), keepdim=True) + 1e-5).sqrt()
        return bn.weight[:, None, None] * centred / spread + bn.bias[:, None, None]

    wide = normalised(torch.einsum("oi,bift->boft", block.conv1.weight[:, :, 0, 0], x), block.bn1).clamp(min=0)
    padded, filtered = F.pad(wide, (1, 1, 1, 1)), torch.zeros_like(wide)
    for row in range(3):
        for column in range(3):
            weight = block.conv2.weight[:, 0, row, column]
            filtered += weight[:, None, None] * padded[:, :, row : row + 5, column : column + 7]
    filtered = normalised(filtered, block.bn2).clamp(min=0)
    narrow = normalised(torch.einsum("oi,bift->boft", block.conv3.weight[:, :, 0, 0], filtered), block.bn3)
    torch.testing.assert_close(block(x), (narrow + x).clamp(min=0), rtol=1e-10, atol=1e-12)
