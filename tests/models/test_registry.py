"""Networks by name: what is built, and what is said about names and sizes that make no network."""

from __future__ import annotations

import pytest
import torch
from network_material import with_zeros

from svtoolkit.errors import UserError
from svtoolkit.models import SpeakerNetwork, build_model, list_models
from svtoolkit.models.registry import NETWORKS

torch.set_num_threads(1)


def refusal(name, **options) -> str:
    with pytest.raises(UserError) as caught:
        build_model(name, **options)
    return str(caught.value)


def test_every_name_builds_the_contract():
    for name in list_models():
        with torch.device("meta"):
            network = build_model(name, num_bins=40, embedding_dim=8)
        assert isinstance(network, SpeakerNetwork)
        assert [child for child, _ in network.named_children()] == ["stem", "stages", "pooling", "embedding"]
        with torch.inference_mode():
            assert with_zeros(network)(torch.zeros(2, 20, 40)).shape == (2, 8)


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


@pytest.mark.parametrize("name", ["ecapa", "", None, []])
def test_a_name_like_no_other_is_answered_with_all_of_them(name):
    message = refusal(name)
    assert f"there is no network {name!r}; (all: resnet10, resnet18" in message
    assert "did you mean" not in message


@pytest.mark.parametrize("key", ["num_bins", "embedding_dim", "base_width"])
@pytest.mark.parametrize("value", [0, -1, 80.0, "80", True, float("nan")])
def test_a_size_is_a_whole_number_of_one_or_more(key, value):
    assert refusal("resnet10", **{key: value}) == (
        f"network resnet10: {key} is {value!r}, expected a whole number of 1 or more"
    )


@pytest.mark.parametrize("key", ["num_bins", "embedding_dim"])
def test_only_the_options_of_a_family_may_be_none(key):
    assert refusal("resnet10", **{key: None}) == (
        f"network resnet10: {key} is None, expected a whole number of 1 or more"
    )


def test_an_unknown_option_is_answered_with_the_valid_ones():
    message = refusal("resnet34", bogus=1)
    assert message == ("network resnet34 has no option 'bogus'; valid are num_bins, embedding_dim, base_width")
    assert "did you mean 'base_width'?" in refusal("resnet34", basewidth=1)


OTHERS = ["df_resnet56", "gemini_df_resnet60", "revnet_tiny", "df_revnet66"]


@pytest.mark.parametrize("name", OTHERS)
def test_an_option_of_another_family_may_be_none_and_nothing_else(name):
    with torch.device("meta"):
        assert build_model(name, base_width=None).stem is not None
    message = f"network {name} has no option 'base_width'; valid are num_bins, embedding_dim"
    assert refusal(name, base_width=32) == message
    assert refusal(name, base_width=0) == message


@pytest.mark.parametrize("name", ["resnet34", *OTHERS])
def test_an_option_that_no_family_has_may_not_even_be_none(name):
    assert f"network {name} has no option 'bogus'; " in refusal(name, bogus=None)


@pytest.mark.parametrize("name", [name for name in list_models() if name != "revnet_tiny"])
def test_the_number_in_a_name_is_that_of_its_layers(name):
    assert name.endswith(f"net{NETWORKS[name].layers}")
