"""Layers of low rank in the place of a network's own, of every family."""

from __future__ import annotations

import pytest
import torch
from network_material import NARROW, narrow
from torch import nn

from svtoolkit.compression.factors import product, ranks_of, weight_of, with_ranks
from svtoolkit.compression.layers import LowRank, apply_ranks, find_layers
from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.models import build_model

BINS, DIM = 16, 12
NETWORKS = ["resnet10", "revnet_tiny", "revnext_tiny", *NARROW]


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name in NARROW:
        return narrow(name, num_bins=BINS, embedding_dim=DIM)
    width = {"base_width": 4} if name == "resnet10" else {}
    return build_model(name, num_bins=BINS, embedding_dim=DIM, **width)


def at_full_rank(name: str) -> tuple[nn.Module, nn.Module, dict[str, int]]:
    """A network, the same with products in the place of all its matrices, and their ranks."""
    network = build(name)
    everything = find_layers(network) | find_layers(network, ["*"])
    ranks = {layer: min(module.weight.flatten(1).shape) for layer, module in everything.items()}
    other = build(name)
    apply_ranks(other, ranks)
    other.load_state_dict(with_ranks(network.state_dict(), ranks))
    return network, other, ranks


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_products_at_full_rank_is_the_network(name):
    network, other, ranks = at_full_rank(name)
    assert len(ranks) > 2
    assert ranks_of(other.state_dict()) == ranks
    x = torch.randn(2, 40, BINS)
    with torch.no_grad():
        torch.testing.assert_close(other.eval()(x), network.eval()(x), rtol=2e-4, atol=2e-4)
    back = with_ranks(other.state_dict(), {})
    assert back.keys() == network.state_dict().keys()
    for key, tensor in network.state_dict().items():
        torch.testing.assert_close(back[key], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("resnet10", "checkpoint"),
        ("resnet10", "recompute_norm"),
        ("revnet_tiny", "reversible"),
        ("revnext_tiny", "hybrid"),
        ("eres2net34_base", "checkpoint"),
    ],
)
def test_gradients_under_a_memory_strategy_are_those_of_stored_activations(name, strategy):
    _, network, _ = at_full_rank(name)
    x = torch.randn(3, 40, BINS)
    gradients = []
    for chosen in ("store", strategy):
        apply_strategy(network, chosen, **({"segments": "blocks"} if chosen == "checkpoint" else {}))
        network.train().zero_grad()
        network(x).square().sum().backward()
        gradients.append({key: parameter.grad.clone() for key, parameter in network.named_parameters()})
    assert any("low_rank_u" in key for key in gradients[0])
    for key, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][key], gradient, rtol=1e-3, atol=1e-3 * float(gradient.abs().max()))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(7, 9),
        nn.Linear(7, 9, bias=False),
        nn.Conv1d(6, 5, 3, stride=2, dilation=2, padding=1),
        nn.Conv2d(4, 6, (3, 1), stride=(2, 1), padding=(1, 0), bias=False),
    ],
)
def test_the_value_is_that_of_the_product(layer):
    low = LowRank(layer, 3)
    whole = nn.Sequential(layer)
    shape = {2: (5, 7), 3: (5, 6, 20), 4: (5, 4, 10, 12)}[layer.weight.dim()]
    x = torch.randn(shape)
    assert low.weight.shape == layer.weight.shape
    whole.load_state_dict(with_ranks({f"0.{key}": tensor for key, tensor in low.state_dict().items()}, {}))
    torch.testing.assert_close(low(x), whole(x))
    torch.testing.assert_close(layer.weight, product(*low.factors))


def test_new_factors_make_a_product_of_the_variance_of_new_weights():
    torch.manual_seed(1)
    layer = nn.Linear(400, 300)
    assert LowRank(layer, 40).weight.std().item() == pytest.approx(layer.weight.std().item(), rel=0.05)


def test_what_has_the_rank_already_stays_as_it_is():
    network = build_model("resnet10", base_width=4, embedding_dim=DIM, ranks={"embedding": 3})
    weights = network.state_dict()
    again = with_ranks(weights, {"embedding": 3})
    assert all(again[key] is tensor for key, tensor in weights.items())
    smaller = with_ranks(weights, {"embedding": 2})
    assert ranks_of(smaller) == {"embedding": 2}
    assert weight_of(smaller, "embedding").shape == weight_of(weights, "embedding").shape


def test_which_layers_are_found():
    network = build_model("ecapa_tdnn_c512")
    found = find_layers(network, min_values=2**16)
    assert {"stem.conv", "stages.0.0.conv", "aggregation", "embedding.1", "pooling.linear1"} <= set(found)
    assert all(module.weight.numel() >= 2**16 for module in found.values())
    resnet = build_model("resnet10")
    assert set(find_layers(resnet)) == {
        "stages.1.0.shortcut.0",
        "stages.2.0.shortcut.0",
        "stages.3.0.shortcut.0",
        "embedding",
    }
    assert set(find_layers(resnet, ["stages.0.*.conv?"])) == {"stages.0.0.conv1", "stages.0.0.conv2"}
    with pytest.raises(UserError, match=r"layers names 'embeding', which no linear layer .* the nearest are embedding"):
        find_layers(resnet, ["embeding"])


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ({"embeding": 3}, r"network resnet10: model.ranks names 'embeding', which the .* not have.*embedding"),
        ({"pooling": 3}, r"names 'pooling', a StatisticsPooling; expected a linear layer"),
        ({"embedding": 13}, r"the rank of embedding is 13, expected a whole number from 1 to 12"),
        ({"embedding": True}, r"the rank of embedding is True, expected"),
        ({"embedding": "a"}, r"the rank of embedding is 'a', expected"),
    ],
)
def test_ranks_that_are_refused(ranks, message):
    with pytest.raises(UserError, match=message):
        build_model("resnet10", embedding_dim=12, ranks=ranks)
