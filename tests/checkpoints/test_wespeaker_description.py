"""What a WeSpeaker config.yaml says of its network, as arguments of ours."""

from __future__ import annotations

from inspect import signature

import pytest
import torch

from svtoolkit.checkpoints.wespeaker import network_of, to_wespeaker
from svtoolkit.checkpoints.wespeaker.description import DESCRIPTIONS
from svtoolkit.errors import UserError
from svtoolkit.models import build_model, list_models


def test_the_example_of_their_recipe():
    arguments = {"feat_dim": 80, "embed_dim": 256, "pooling_func": "TSTP", "two_emb_layer": False}
    assert network_of("ResNet34", arguments) == {
        "name": "resnet34",
        "num_bins": 80,
        "embedding_dim": 256,
        "embedding_layers": 1,
    }
    assert network_of("ResNet34", {**arguments, "two_emb_layer": True})["embedding_layers"] == 2
    assert network_of("XVEC", {}) == {"name": "xvector", "num_bins": 40, "embedding_dim": 512}
    assert network_of("REPVGG_TINY_A0", {"feat_dim": 80, "embed_dim": 256, "deploy": True})["deployed"] is True


MODULES = {
    "ResNet": "resnet", "Gemini": "gemini_dfresnet", "ECAPA": "ecapa_tdnn", "CAMPPlus": "campplus",
    "Res2Net": "res2net", "ERes2Net": "eres2net", "SimAM": "samresnet", "XVEC": "tdnn",
    "REPVGG": "repvgg", "ReDimNetB": "redimnet", "ReDimNet2B": "redimnet2",
}  # fmt: skip


def test_every_constructor_of_theirs_is_known_with_its_defaults(wespeaker):
    """Whatever a constructor has a default for, a description takes with that default, or has the key for it."""
    for model, description in DESCRIPTIONS.items():
        module = wespeaker(f"models.{next(MODULES[key] for key in MODULES if model.startswith(key))}")
        parameters = signature(getattr(module, model)).parameters
        assert description.name in list_models()
        if "kwargs" in parameters:
            parameters = signature(module.ReDimNet2Wrap).parameters
        defaults = {key: each.default for key, each in parameters.items() if each.default is not each.empty}
        for key, value in description.only.items():
            assert defaults[key] == value, (model, key)
        for key in description.renamed:
            assert defaults[key] is False, (model, key)
        if description.pooling:
            assert defaults["pooling_func"] == description.pooling, model
        key, bins = description.bins
        if model.startswith("ReDimNet2"):
            key = "F"
        assert key in parameters
        assert defaults.get(key) == bins, model
        assert defaults.get("embed_dim") == description.embedding, model


@pytest.mark.parametrize("model", ["ResNet50", "Gemini_DF_ResNet60", "ERes2Net34_Base", "Res2Net34_Base", "ReDimNetB2"])
def test_a_description_builds_the_network_of_their_weights(wespeaker, model):
    module = wespeaker(f"models.{next(MODULES[key] for key in MODULES if model.startswith(key))}")
    arguments = {"feat_dim": 96, "embed_dim": 24, "two_emb_layer": True}
    with torch.device("meta"):
        theirs = getattr(module, model)(**arguments).state_dict()
        ours = to_wespeaker(build_model(**network_of(model, arguments)).state_dict())
    assert {key: tensor.shape for key, tensor in ours.items()} == {key: tensor.shape for key, tensor in theirs.items()}


SIZES = {"feat_dim": 80, "embed_dim": 256}


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ("ResNet43", {}, "model is 'ResNet43', did you mean 'ResNet34'? expected one of ResNet18, ResNet34, "),
        (34, {}, "model is 34, expected one of ResNet18, ResNet34, "),
        (
            "ResNet34",
            {**SIZES, "dropout": 1},
            "model_args of ResNet34 has 'dropout', expected no other keys than feat_dim, ",
        ),
        (
            "ResNet34",
            {**SIZES, "pooling_func": "XI"},
            "model_args of ResNet34: pooling_func is 'XI', and a network is known ",
        ),
        (
            "ResNet34",
            {"feat_dim": 80},
            "model_args of ResNet34: embed_dim is None, expected a whole number of 1 or more",
        ),
        ("ResNet34", {**SIZES, "feat_dim": True}, "model_args of ResNet34: feat_dim is True, expected a whole number"),
        (
            "ResNet34",
            {**SIZES, "two_emb_layer": 1},
            "model_args of ResNet34: two_emb_layer is 1, expected true or false",
        ),
        ("XVEC", {"hid_dim": 256}, "model_args of XVEC: hid_dim is 256, and a network is known for 512 alone"),
    ],
)
def test_what_is_not_known_is_refused(model, arguments, message):
    with pytest.raises(UserError) as caught:
        network_of(model, arguments)
    assert str(caught.value).startswith(message)
