"""RevNet and DF-RevNet: published sizes, shapes, and the gradients of stored activations at any depth."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from network_material import on_meta, with_zeros
from reversible_material import (
    Step,
    assert_bit_equal,
    assert_recomputed,
    norms_of,
    one_step,
    random_map,
    relative_error,
    settle_norms,
)
from torch import nn

from svtoolkit.models import SpeakerNetwork, build_model
from svtoolkit.models.recomputed_blocks import (
    ConvNormRelu,
    DoubleStem,
    FinalActivation,
    RecomputedBasicBlock,
    RecomputedBottleneck,
    SqueezedTransition,
)
from svtoolkit.models.registry import NETWORKS
from svtoolkit.models.residual_functions import DepthFirstFunction, PreActivationFunction
from svtoolkit.models.revnet import build_df_revnet, build_revnet
from svtoolkit.reversible import AdditiveCoupling, Chain, ReversibleSequence

torch.set_num_threads(1)

# name: millions of parameters, type, couplings of the four stages, inputs of the embedding layer at 80 bins
SIZES = {
    "revnet_tiny": (0.63, "II", (1, 2, 3, 1), 1_280),
    "revnet46": (6.75, "I", (1, 2, 4, 2), 6_000),
    "revnet57": (6.11, "II", (2, 3, 5, 3), 6_000),
    "revnet126": (14.99, "I", (2, 3, 22, 2), 7_680),
    "revnet137": (14.22, "II", (3, 4, 23, 3), 7_680),
    "revnet140": (15.82, "I", (2, 3, 14, 2), 24_000),
    "revnet155": (16.47, "II", (3, 4, 15, 3), 24_000),
    "revnet178": (18.31, "I", (2, 7, 31, 2), 7_680),
    "revnet197": (18.21, "II", (3, 8, 34, 3), 7_680),
    "revnet230": (19.61, "I", (2, 7, 25, 2), 24_000),
    "revnet245": (20.26, "II", (3, 8, 26, 3), 24_000),
    "df_revnet66": (4.82, "I", (2, 2, 4, 2), 7_680),
    "df_revnet89": (4.97, "II", (3, 3, 5, 3), 7_680),
    "df_revnet126": (6.40, "I", (2, 2, 14, 2), 7_680),
    "df_revnet149": (6.55, "II", (3, 3, 15, 3), 7_680),
    "df_revnet258": (9.29, "I", (2, 7, 31, 2), 7_680),
    "df_revnet281": (9.44, "II", (3, 8, 32, 3), 7_680),
    "df_revnet354": (11.82, "I", (2, 7, 47, 2), 7_680),
    "df_revnet377": (11.96, "II", (3, 8, 48, 3), 7_680),
}
every_network = pytest.mark.parametrize("name", SIZES)
# a network of every family and type, as small as they come
FAMILIES = ["revnet46", "revnet57", "revnet140", "revnet155", "df_revnet66", "df_revnet89"]
# in which every kind of stem, entrance and residual function is found
EVERY_LAYER = ["revnet46", "revnet140", "df_revnet66", "df_revnet89"]
# channels of the deepest networks under their own rounding: with fewer a single ReLU is too much of the whole
DEEP = {"revnet197": (48, 96, 192, 384), "df_revnet377": (24, 48, 96, 192)}


@cache
def small(name: str, bins: int = 16) -> SpeakerNetwork:
    """Fresh weights for maps of few bins; whoever changes them takes a copy."""
    torch.manual_seed(0)
    return build_model(name, num_bins=bins, embedding_dim=8)


@cache
def narrow(name: str, bins: int = 16, channels: tuple[int, ...] = (16, 32, 64, 100)) -> SpeakerNetwork:
    """As ``small``, with all blocks and a third of the channels: a ninth of the arithmetic."""
    torch.manual_seed(0)
    return as_published(name, num_bins=bins, embedding_dim=8, channels=channels)


def as_published(name: str, **changes) -> SpeakerNetwork:
    """But for what is given."""
    build = build_df_revnet if name.startswith("df") else build_revnet
    return build(**NETWORKS[name].arguments | changes)


def frames_for(bins: int, frames: int, batch: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return random_map(batch, frames, bins, dtype=dtype)


def couplings_of(stage: nn.Module) -> list[AdditiveCoupling]:
    return [module for module in stage.modules() if isinstance(module, AdditiveCoupling)]


def test_every_network_has_its_sizes_pinned():
    assert set(SIZES) == {name for name, row in NETWORKS.items() if row.help in ("RevNet", "DF-RevNet")}


@every_network
def test_sizes(name):
    millions, kind, couplings, pooled = SIZES[name]
    network = on_meta(name)
    counted = sum(parameter.numel() for parameter in network.parameters())
    assert f"{counted / 1e6:.2f}" == f"{millions:.2f}"
    assert NETWORKS[name].arguments["kind"] == kind
    assert tuple(len(couplings_of(stage)) for stage in network.stages) == couplings
    assert network.embedding.in_features == pooled


@every_network
def test_a_name_counts_the_layers(name):
    """Convolutions of the main path and the last Linear; shortcuts are not counted."""
    network = on_meta(name)
    layers = [
        path
        for path, module in network.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear) and "shortcut" not in path
    ]
    assert len(layers) == network.layers
    assert name == "revnet_tiny" or name.endswith(f"net{network.layers}")


@every_network
def test_a_stage_is_its_entrance_and_its_couplings(name):
    network, row = on_meta(name), NETWORKS[name]
    kind, is_depth_first = row.arguments["kind"], row.help == "DF-RevNet"
    ordinary = {None: None, "basic": RecomputedBasicBlock, "bottleneck": RecomputedBottleneck}[
        row.arguments.get("block")
    ]
    assert isinstance(network.stem, Chain)
    assert [type(layer) for layer in network.stem] == [DoubleStem if is_depth_first and kind == "I" else ConvNormRelu]
    for index, stage in enumerate(network.stages):
        assert isinstance(stage, Chain)
        *entrance, sequence = list(stage)[: -1 if index == 3 else None]
        assert isinstance(sequence, ReversibleSequence)
        if kind == "I" and not is_depth_first:
            expected = [ordinary]
        else:
            expected = [] if index == 0 else [ConvNormRelu if kind == "I" else SqueezedTransition]
        assert [type(layer) for layer in entrance] == expected
        functions = [function for coupling in sequence.couplings() for function in (coupling.f, coupling.g)]
        assert {type(f) for f in functions} == {DepthFirstFunction if is_depth_first else PreActivationFunction}
    assert type(network.stages[3][-1]) is FinalActivation


@pytest.mark.parametrize(("num_bins", "frames"), [(23, 9), (16, 1)])
@pytest.mark.parametrize("name", ["revnet_tiny", *FAMILIES])
@torch.no_grad()
def test_strides_and_shapes(name, num_bins, frames):
    """Of one coupling a stage, since couplings keep the shape."""
    with torch.device("meta"):
        network = as_published(name, num_bins=num_bins, embedding_dim=192, blocks=(1, 1, 1, 1))
    network = with_zeros(network)
    published = NETWORKS[name].arguments
    widening = 4 if published.get("block") == "bottleneck" else 1
    widths = published.get("channels", (48, 96, 192, 384))
    feature_map = network.stem(torch.zeros(3, 1, num_bins, frames))
    rows, columns = -(-num_bins // 2) if name == "revnet_tiny" else num_bins, frames
    for index, (stage, channels) in enumerate(zip(network.stages, widths, strict=True)):
        feature_map = stage(feature_map)
        rows, columns = (-(-rows // 2), -(-columns // 2)) if index else (rows, columns)
        assert feature_map.shape == (3, widening * channels, rows, columns)
    assert network.embedding.in_features == 2 * feature_map.shape[1] * rows
    assert network.embedding(network.pooling(feature_map)).shape == (3, 192)


def test_the_size_of_a_network_counted_from_its_layout():
    """RevNet57 by hand: two numbers a BatchNorm channel, 3x3 convolutions on halves, transitions, the end."""
    widths, blocks = (48, 96, 192, 300), (2, 3, 5, 3)
    count, channels = 9 * 48 + 2 * 48, 48
    for width, number in zip(widths, blocks, strict=True):
        half = width // 2
        count += number * 2 * 2 * (9 * half * half + 2 * half)
        if width != channels:
            count += 9 * channels * width // 4 + 2 * width // 4
        channels = width
    count += 2 * 300 + (2 * 300 * 10 + 1) * 256
    assert count == sum(parameter.numel() for parameter in on_meta("revnet57").parameters())


def both(network: nn.Module, x: torch.Tensor, **options) -> tuple[Step, Step]:
    """The stored step and the reversible one."""
    return one_step(network, x, "store", **options), one_step(network, x, "reversible", **options)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> tuple[Step, Step]:
    """A stored and a reversible step of one network of a family."""
    return both(narrow(request.param), frames_for(16, 18, 2))


def test_gradients_of_every_family_to_the_bit(family):
    stored, found = family
    assert_bit_equal(found, stored)


def test_every_parameter_learns(family):
    _, found = family
    assert [key for key, gradient in found.gradients.items() if not gradient.abs().sum() > 0] == []


def test_running_statistics_move_once(family):
    _, found = family
    fresh = {"running_mean": 0, "running_var": 1, "num_batches_tracked": 0}
    for name, buffer in found.buffers.items():
        assert not (buffer == fresh[name.rpartition(".")[2]]).all(), name
        assert not name.endswith("num_batches_tracked") or buffer == 1
    assert len(found.buffers) == 3 * sum(name.endswith("running_mean") for name in found.buffers)


@pytest.mark.parametrize("name", EVERY_LAYER)
def test_odd_maps_of_one_utterance_under_autocast_to_the_bit(name):
    assert_recomputed(narrow(name, 13), frames_for(13, 19, 1), cast=torch.bfloat16)


@pytest.mark.parametrize("name", EVERY_LAYER)
def test_channels_last_to_the_bit(name):
    network = copy.deepcopy(narrow(name)).to(memory_format=torch.channels_last)
    assert_recomputed(network, frames_for(16, 18, 2))


@pytest.mark.parametrize("name", EVERY_LAYER)
def test_odd_maps_in_float64(name):
    network = settle_norms(copy.deepcopy(narrow(name, 13)).double())
    assert_recomputed(network, frames_for(13, 11, 2, torch.float64))


@pytest.mark.parametrize("name", EVERY_LAYER)
def test_gradients_in_evaluation_mode(name):
    network = settle_norms(copy.deepcopy(narrow(name))).eval()
    found = assert_recomputed(network, frames_for(16, 11, 2))
    assert all(torch.equal(buffer, found.buffers[name]) for name, buffer in network.named_buffers())


class Deep:
    """A network of full depth, and a batch on which a single ReLU is a small part of the whole.

    Attributes:
        network: as the registry builds it.
        broad, thin: of as many layers, with the channels of ``DEEP`` and with few.
    """

    def __init__(self, name: str) -> None:
        self.network = small(name, 32)
        self.broad = narrow(name, 32, DEEP[name])
        self.thin = narrow(name, 32, (16, 16, 32, 32))
        self.x = frames_for(32, 32, 2)[:1]
        self.short = self.x[:, :8]


deep_of = cache(Deep)
both_deepest = pytest.mark.parametrize("name", DEEP)


@both_deepest
def test_float32_at_full_depth_without_exact_arithmetic(name):
    """No ReLU can change sides here, and what is measured is the arithmetic: half the channels are on, half off."""
    deep = deep_of(name)
    network = copy.deepcopy(deep.thin)
    for norm in norms_of(network):
        norm.bias.data[::2], norm.bias.data[1::2] = 8.0, -8.0
    stored, found = both(network, deep.short, exact=False)
    assert 0 < relative_error(found, stored) < 1e-3


@both_deepest
def test_float32_at_full_depth_with_fresh_weights_without_exact_arithmetic(name):
    """Recovered inputs are a rounding error off, and single ReLUs near zero change sides for it.

    They do so in float32 anyway: stored activations are as far from float64 as recomputation from them.
    """
    deep = deep_of(name)
    truth = one_step(copy.deepcopy(deep.broad).double(), deep.x.double(), "store")
    stored, found = both(deep.broad, deep.x, exact=False)
    bound = 1e-3 + 4 * relative_error(stored, truth)
    assert bound < 0.2
    assert 0 < relative_error(found, stored) < bound
    assert relative_error(found, truth) < bound


@both_deepest
def test_a_network_of_the_registry_to_the_bit_at_full_depth(name):
    deep = deep_of(name)
    assert_recomputed(deep.network, deep.short)


@pytest.mark.parametrize(("name", "cast"), [("revnet197", torch.bfloat16), ("df_revnet377", torch.float16)])
def test_autocast_to_the_bit_at_full_depth(name, cast):
    deep = deep_of(name)
    assert_recomputed(deep.thin, deep.short, cast=cast)


def test_float64_to_the_bit_at_full_depth():
    deep = deep_of("revnet197")
    assert_recomputed(copy.deepcopy(deep.thin).double(), deep.short.double())
