"""Networks by name: what is built, and what is said about names and sizes that make no network."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature

import pytest
import torch
from network_material import of_zeros, on_meta
from plugin_package import install_package

from svtoolkit.errors import UserError
from svtoolkit.models import ChainNetwork, PooledNetwork, SpeakerNetwork, build_model, list_models
from svtoolkit.models.registry import NETWORKS
from svtoolkit.registry import Registry, defaults

torch.set_num_threads(1)


def refusal(name, **options) -> str:
    with pytest.raises(UserError) as caught:
        build_model(name, **options)
    return str(caught.value)


FRAMES = {"xvector": 15}
"""Name -> how many it takes where convolutions are not padded."""


@pytest.mark.parametrize("name", list_models())
def test_every_name_builds_the_contract_and_says_its_layers(name):
    network = on_meta(name)
    if name == "ge2e_lstm":  # pools nothing
        assert isinstance(network, SpeakerNetwork)
        return
    assert isinstance(network, PooledNetwork)
    children = [child for child, _ in network.named_children()]
    assert children[-2:] == ["pooling", "embedding"]
    if isinstance(network, ChainNetwork):
        assert children[:-2] == ["stem", "stages"]
    assert (
        name.endswith("_tiny")
        or network.layers is None
        or name.endswith((f"net{network.layers}", f"next{network.layers}"))
    )


def one_of_each_kind() -> list[str]:
    """The first network of all that differ in their sizes alone."""
    first: dict[object, str] = {}
    for name, row in NETWORKS.rows.items():
        kind = {key: value for key, value in row.arguments.items() if isinstance(value, (str, bool))}
        first.setdefault((row.help, repr(kind), "stem_stride" in row.arguments), name)
    return list(first.values())


@pytest.mark.parametrize("name", one_of_each_kind())
def test_every_kind_gives_embeddings_of_the_size_asked_for(name):
    network = of_zeros(name, num_bins=11, embedding_dim=8)
    with torch.inference_mode():
        assert network(torch.zeros(2, FRAMES.get(name, 7), 11)).shape == (2, 8)


def test_what_one_family_begins_with_may_be_said_of_another():
    assert build_model("revnet_tiny", embedding_layers=1, base_width=None).embedding_dim == 256
    assert "has no option 'embedding_layers'" in refusal("revnet_tiny", embedding_layers=2)


def test_the_list_is_a_copy():
    list_models().clear()
    assert "resnet34" in list_models()


@pytest.mark.parametrize(
    ("name", "near"),
    [("resent34", "resnet34"), ("ResNet152", "resnet152"), ("RESNET_18", "resnet18"), (34, "resnet34")],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, near):
    message = refusal(name)
    assert f"there is no network {name!r}; did you mean {near!r}?" in message
    for known in list_models():
        assert known in message


@pytest.mark.parametrize("name", ["zzz", "", None, []])
def test_a_name_like_no_other_is_answered_with_all_of_them(name):
    message = refusal(name)
    assert f"there is no network {name!r}; (all: resnet10, resnet18" in message
    assert "did you mean" not in message


@pytest.mark.parametrize("key", ["num_bins", "embedding_dim", "base_width"])
@pytest.mark.parametrize("value", [0, -1, 80.0, "80", True, float("nan")])
def test_a_size_is_a_whole_number_of_one_or_more(key, value):
    message = refusal("resnet10", **{key: value})
    assert message.startswith(f"network resnet10: {key} is {value!r}, expected a whole number")
    assert ("of 1 or more" in message) == (type(value) is int)


@pytest.mark.parametrize("key", ["num_bins", "embedding_dim"])
def test_only_the_options_of_a_family_may_be_none(key):
    assert refusal("resnet10", **{key: None}) == f"network resnet10: {key} is None, expected a whole number"


@pytest.mark.parametrize("name", ["resnet10", "df_resnet56", "eres2netv2", "redimnet_b0"])
def test_one_embedding_layer_or_two(name):
    with torch.device("meta"):
        assert build_model(name, embedding_layers=2).embedding[-1].out_features == 256
    assert refusal(name, embedding_layers=3) == f"network {name}: embedding_layers is 3, expected 1 or 2"


def test_an_unknown_option_is_answered_with_the_valid_ones():
    message = refusal("resnet34", bogus=1)
    assert message == (
        "network resnet34 has no option 'bogus'; valid are num_bins, embedding_dim, ranks, base_width, "
        "embedding_layers, pooling_eps"
    )
    assert "did you mean 'base_width'?" in refusal("resnet34", basewidth=1)


OTHERS = ["df_resnet56", "gemini_df_resnet60", "revnet_tiny", "df_revnet66", "revnext_tiny"]


@pytest.mark.parametrize("name", OTHERS)
def test_an_option_of_another_family_may_be_none_and_nothing_else(name):
    with torch.device("meta"):
        assert build_model(name, base_width=None).stem is not None
    own = {"revnet_tiny": ", slope, norm_floor, insides", "revnext_tiny": ", slope, norm_floor"}.get(name, "")
    message = f"network {name} has no option 'base_width'; valid are num_bins, embedding_dim, ranks{own}"
    for width in (32, 0):
        assert refusal(name, base_width=width).removesuffix(", embedding_layers") == message


@pytest.mark.parametrize("name", ["resnet34", *OTHERS])
def test_an_option_that_no_family_has_may_not_even_be_none(name):
    assert f"network {name} has no option 'bogus'; " in refusal(name, bogus=None)


@pytest.mark.parametrize("name", list_models())
def test_a_row_fixes_all_that_is_not_set(name):
    """Between them, settings and row name every argument of the builder without a default, and no other."""
    row = NETWORKS[name]
    set_by_users = {item.name for item in fields(row.settings)} - {"name", "ranks"}
    assert not set_by_users & set(row.arguments)
    signature(row.load()).bind(num_bins=80, **dict.fromkeys(set_by_users), **row.arguments)
    with_defaults = {
        key: value for key, value in defaults(row.settings).items() if key in set_by_users - {"embedding_dim"}
    }
    assert {key: signature(row.load()).parameters[key].default for key in with_defaults} == with_defaults


PLUGIN = """
    from dataclasses import dataclass
    from torch import nn
    from svtoolkit.config import ModelConfig
    from svtoolkit.registry import Row

    @dataclass
    class Settings(ModelConfig):
        width: int = 8
        dropout: float = 0.0

    class Mean(nn.Module):
        def __init__(self, num_bins, embedding_dim, width, dropout, forgets=False):
            super().__init__()
            if not forgets:
                self.embedding_dim = embedding_dim
            if width < 2:
                raise ValueError(f"width is {width}, expected 2 or more")
            self.layer = nn.Sequential(nn.Linear(num_bins, width), nn.Dropout(dropout), nn.Linear(width, embedding_dim))

        def forward(self, frames):
            return self.layer(frames).mean(1)

    row = Row("mean_network:Mean", Settings)
    forgetful = Row("mean_network:Mean", Settings, {"forgets": True})
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch) -> Registry:
    monkeypatch.syspath_prepend(
        install_package(
            tmp_path,
            "mean_network",
            PLUGIN,
            {"svtoolkit.models": {"mean": "mean_network:row", "forgetful": "mean_network:forgetful"}},
        )
    )
    fresh = Registry("network", "svtoolkit.models", NETWORKS.rows, NETWORKS.settings)
    monkeypatch.setattr("svtoolkit.models.build.NETWORKS", fresh)
    return fresh


def test_a_network_of_a_package(plugin):
    assert list_models()[-2:] == ["mean", "forgetful"]
    network = build_model("mean", num_bins=24, embedding_dim=4)
    assert network.layer[0].out_features == 8  # the default of the settings
    assert network(torch.zeros(2, 5, 24)).shape == (2, 4)


def test_a_network_that_does_not_say_its_embedding_dim_is_refused(plugin):
    with pytest.raises(UserError, match=r"forgetful: mean_network:Mean .* embedding_dim is missing, expected 4"):
        build_model("forgetful", embedding_dim=4)
    assert build_model("mean", width=3, base_width=None).layer[0].out_features == 3


def test_settings_of_a_package_are_checked_like_ours(plugin):
    assert refusal("mean", widht=2).startswith("network mean has no option 'widht'; did you mean 'width'?")
    assert refusal("mean", width=2.5) == "network mean: width is 2.5, expected a whole number"
    assert refusal("mean", dropout="much") == "network mean: dropout is 'much', expected a finite number"
    assert refusal("mean", width=None) == "network mean: width is None, expected a whole number"
    assert refusal("mean", width=1) == "network mean: width is 1, expected 2 or more"
    assert refusal("mean", embedding_dim=0) == (
        "network mean: embedding_dim is 0, expected a whole number of 1 or more"
    )
