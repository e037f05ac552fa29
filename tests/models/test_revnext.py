"""RevNeXt, and RevNet with insides that are inverted layer by layer: sizes, shapes, gradients, memory, refusals."""

from __future__ import annotations

import pytest
import torch
from network_material import on_meta
from reversible_material import assert_same_buffers, one_step, random_map, relative_error, settle_norms
from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.measurement import measure_step
from svtoolkit.models import SpeakerNetwork, build_model
from svtoolkit.models.registry import NETWORKS
from svtoolkit.models.revnet import build_revnet
from svtoolkit.reversible import AdditiveCoupling, CoupledConvolution, LayerwiseFunction

torch.set_num_threads(1)

# name: millions of parameters, couplings, inputs of the embedding layer at 80 bins
SIZES = {"revnext_tiny": (0.96, 9, 960), "revnext57": (6.55, 15, 3_840), "revnext137": (13.04, 35, 3_200)}


def small_network(name: str = "revnext57", *, bins: int = 16, slope: float = 0.1) -> SpeakerNetwork:
    """Few channels and blocks; ``hybrid`` and ``in_place`` are RevNets with these insides."""
    torch.manual_seed(2)
    options = {"num_bins": bins, "embedding_dim": 8, "slope": slope, "norm_floor": 0.1}
    if name == "revnext57":
        network = NETWORKS.load(name)(width=8, blocks=(1, 1, 2, 1), **options)
    else:
        widths = {"channels": (8, 8, 16, 16), "blocks": (1, 1, 2, 1)}
        network = build_revnet(kind="II", block="basic", insides=name, **widths, **options)
    return settle_norms(network)


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    network = on_meta(name)
    couplings = [module for module in network.modules() if isinstance(module, AdditiveCoupling)]
    counted = sum(parameter.numel() for parameter in network.parameters())
    assert (round(counted / 1e6, 2), len(couplings), network.embedding.in_features) == SIZES[name]


@pytest.mark.parametrize("name", SIZES)
def test_a_coupled_convolution_is_a_layer(name):
    """Two convolutions of a coupling between stages are one, too; the ordinary ones are stem and reduction."""
    network = on_meta(name)
    coupled = sum(isinstance(module, CoupledConvolution) for module in network.modules())
    mixing = sum(isinstance(m, AdditiveCoupling) and isinstance(m.f, nn.Conv2d) for m in network.modules())
    assert network.layers == coupled + mixing + 2 + 1  # the last is the embedding


def test_every_network_has_its_sizes_pinned():
    assert set(SIZES) == {name for name, row in NETWORKS.items() if row.help == "RevNeXt"}


@pytest.mark.parametrize(("bins", "frames"), [(80, 200), (40, 97), (17, 31), (3, 5)])
def test_maps_that_are_not_square_and_odd_sizes(bins, frames):
    network = small_network(bins=bins)
    x = random_map(2, frames, bins)
    found = one_step(network, x, "hybrid")
    assert found.value.shape == (2, 8)
    stored = one_step(network, x, "store")
    assert torch.equal(found.value, stored.value)
    assert relative_error(found, stored) < 1e-4


@pytest.mark.parametrize("name", ["revnext57", "hybrid", "in_place"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "frozen"])
def test_gradients_are_those_of_stored_activations(name, training):
    network = small_network(name).double().train(training)
    x = random_map(3, 22, 16, dtype=torch.float64)
    stored, found = one_step(network, x, "store"), one_step(network, x, "hybrid")
    assert torch.equal(found.value, stored.value)
    assert relative_error(found, stored) < 1e-9
    assert_same_buffers(found, stored)


@pytest.mark.parametrize("name", ["revnext57", "hybrid", "in_place"])
@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_autocast_rounds_more_than_inversion(name, cast):
    network, x = small_network(name), random_map(3, 22, 16)
    stored, found = one_step(network, x, "store", cast=cast), one_step(network, x, "hybrid", cast=cast)
    assert torch.equal(found.value, stored.value)
    assert relative_error(found, stored) < 0.2 * relative_error(stored, one_step(network, x, "store"))


def test_the_embedding_of_a_batch_is_that_of_each_utterance():
    """In eval mode: what batch pooling puts side by side is not mixed."""
    network, x = small_network().double().eval(), random_map(3, 22, 16, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(network(x), torch.cat([network(each[None]) for each in x]))


def bytes_per_utterance(network: nn.Module, strategy: str, batch: int = 2**17) -> float:
    apply_strategy(network, strategy)
    frames = torch.randn(batch, 200, 80)
    return measure_step([network], lambda: network(frames).sum(), inputs=[frames], warm_up=0).peak_bytes / batch


def test_a_revnet57_of_such_insides_needs_less():
    """0.0104 GiB an utterance with standard insides and memory=reversible; the same, of memory=hybrid."""
    with QuickFakeTensorMode():
        networks = {insides: build_model("revnet57", insides=insides).train() for insides in ("in_place", "hybrid")}
        found = {insides: bytes_per_utterance(network, "hybrid") / 2**30 for insides, network in networks.items()}
        kept = bytes_per_utterance(networks["in_place"], "reversible") / 2**30
    assert all(gib < 0.0093 for gib in found.values()), found
    assert kept > 0.014


def test_depth_costs_no_memory():
    with QuickFakeTensorMode():
        sizes = {
            blocks: bytes_per_utterance(
                NETWORKS.load("revnext57")(
                    num_bins=80, embedding_dim=8, width=8, blocks=(blocks,) * 4, slope=0.1, norm_floor=0.1
                ),
                "hybrid",
            )
            for blocks in (1, 4)
        }
    assert sizes[4] < 1.01 * sizes[1]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("revnet57", {"insides": "other"}, "insides is 'other', expected one of standard, in_place, hybrid"),
        (
            "revnet57",
            {"slope": 0.5},
            "slope and norm_floor are of blocks that can be inverted, and insides is 'standard'",
        ),
        ("revnet155", {"insides": "hybrid"}, "insides is 'hybrid', which saves nothing in bottleneck blocks"),
        ("revnext57", {"slope": 0.0}, "slope is 0.0, expected a number above 0, 1 at most"),
        ("revnext57", {"norm_floor": 2.0}, "norm_floor is 2.0, expected a number above 0, 1 at most"),
        ("df_revnet89", {"insides": "hybrid"}, "has no option 'insides'"),
    ],
)
def test_what_cannot_be_built_is_refused(name, options, message):
    with pytest.raises(UserError) as caught:
        build_model(name, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("insides", ["standard", "in_place", "hybrid"])
def test_which_networks_can_be_hybrid(insides):
    with torch.device("meta"):
        network = build_model("revnet_tiny", insides=insides)
    if insides == "standard":
        with pytest.raises(UserError, match="this network has none; choose memory=reversible, model=revnext57"):
            apply_strategy(network, "hybrid")
        return
    assert apply_strategy(network) == "hybrid"
    functions = [module for module in network.modules() if isinstance(module, LayerwiseFunction)]
    assert all(function.layerwise for function in functions)
    for strategy in ("reversible", "store"):
        apply_strategy(network, strategy)
        assert not any(function.layerwise for function in functions)
