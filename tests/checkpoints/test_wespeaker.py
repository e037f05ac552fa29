"""Our networks against WeSpeaker's own model code: the same names, the same shapes, the same numbers."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

from svtoolkit.checkpoints.wespeaker import from_wespeaker, load_wespeaker, to_wespeaker
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.df_resnet import build_df_resnet

torch.set_num_threads(1)

RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnet221", "resnet293")
GEMINIS = ("gemini_df_resnet60", "gemini_df_resnet114", "gemini_df_resnet183", "gemini_df_resnet237")


def randomise(network: nn.Module, seed: int = 0) -> nn.Module:
    """BatchNorm as after training: its own scale, shift and statistics in every channel."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # of the embedding there is none that has a scale
            for tensor, low, high in (
                (module.weight.data, 0.5, 1.5),
                (module.bias.data, -0.3, 0.3),
                (module.running_mean, -0.3, 0.3),
                (module.running_var, 0.5, 2.0),
            ):
                tensor.uniform_(low, high, generator=generator)
            module.num_batches_tracked.fill_(1234)
    return network


@pytest.fixture(scope="module")
def their_networks(wespeaker):
    """Their constructor by our name."""
    resnet, gemini = wespeaker("models.resnet"), wespeaker("models.gemini_dfresnet")
    constructors = {name: getattr(resnet, name.replace("resnet", "ResNet")) for name in RESNETS}
    for name in GEMINIS:
        constructors[name] = getattr(gemini, name.replace("gemini_df_resnet", "Gemini_DF_ResNet"))
    return constructors


@pytest.mark.parametrize("name", RESNETS + GEMINIS)
def test_names_and_shapes(their_networks, name):
    with torch.device("meta"):
        ours, theirs = build_model(name), their_networks[name](feat_dim=80, embed_dim=256)
    mapped = to_wespeaker(ours.state_dict())
    assert {key: (tensor.shape, tensor.dtype) for key, tensor in mapped.items()} == {
        key: (tensor.shape, tensor.dtype) for key, tensor in theirs.state_dict().items()
    }


# Theirs takes the number of bins by 16 in Gemini, rounding down: that fits multiples of 16 alone.
@pytest.mark.parametrize(
    ("name", "num_bins"),
    [("resnet18", 24), ("resnet50", 8), ("gemini_df_resnet60", 16), ("gemini_df_resnet60", 32)],
)
def test_equal_embeddings_in_evaluation_and_training(their_networks, name, num_bins):
    torch.manual_seed(1)
    ours = randomise(build_model(name, num_bins=num_bins, embedding_dim=64))
    theirs = their_networks[name](feat_dim=num_bins, embed_dim=64)
    theirs.load_state_dict(to_wespeaker(ours.state_dict()), strict=True)
    frames = torch.randn(2, 25, num_bins)
    for training in (False, True):
        ours.train(training)
        theirs.train(training)
        with torch.no_grad():
            torch.testing.assert_close(ours(frames), theirs(frames.clone())[-1], rtol=1e-5, atol=1e-5)
    after = to_wespeaker(ours.state_dict())
    for key, tensor in theirs.state_dict().items():
        torch.testing.assert_close(after[key], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "gemini_df_resnet60"])
def test_equal_maps_to_the_last_bit(their_networks, name):
    torch.manual_seed(4)
    ours = randomise(build_model(name, num_bins=16, embedding_dim=8))
    theirs = their_networks[name](feat_dim=16, embed_dim=8)
    theirs.load_state_dict(to_wespeaker(ours.state_dict()), strict=True)
    maps: list[torch.Tensor] = []
    for pooling in (ours.pooling, theirs.pool):
        pooling.register_forward_hook(lambda module, given, output: maps.append(given[0]))
    frames = torch.randn(2, 13, 16)
    for training in (False, True):
        maps.clear()
        with torch.no_grad():
            ours.train(training)(frames)
            theirs.train(training)(frames.clone())
        assert torch.equal(*maps)


@pytest.mark.parametrize("name", ["resnet18", "gemini_df_resnet60"])
def test_equal_gradients(their_networks, name):
    torch.manual_seed(2)
    ours = randomise(build_model(name, num_bins=16, embedding_dim=8))
    theirs = their_networks[name](feat_dim=16, embed_dim=8)
    theirs.load_state_dict(to_wespeaker(ours.state_dict()))
    frames = torch.randn(3, 12, 16)
    ours(frames).square().sum().backward()
    theirs(frames.clone())[-1].square().sum().backward()
    gradients = to_wespeaker({name: parameter.grad for name, parameter in ours.named_parameters()})
    for name, parameter in theirs.named_parameters():
        assert (gradients[name] - parameter.grad).norm() <= 1e-4 * parameter.grad.norm(), name


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "gemini_df_resnet60"])
def test_round_trip(their_networks, name):
    ours = build_model(name, num_bins=8, embedding_dim=4).state_dict()
    back = from_wespeaker(to_wespeaker(ours))
    assert list(back) == list(ours)
    assert all(back[key] is ours[key] or torch.equal(back[key], ours[key]) for key in ours)
    with torch.device("meta"):
        theirs = their_networks[name](feat_dim=80, embed_dim=256).state_dict()
    assert list(to_wespeaker(from_wespeaker(theirs))) == list(theirs)


@pytest.mark.parametrize("name", ["resnet18", "gemini_df_resnet60"])
def test_networks_of_theirs_with_two_embedding_layers(their_networks, name):
    torch.manual_seed(6)
    theirs = randomise(their_networks[name](feat_dim=16, embed_dim=8, two_emb_layer=True)).eval()
    theirs.seg_bn_1.running_mean.uniform_(-0.3, 0.3)
    theirs.seg_bn_1.running_var.uniform_(0.5, 2.0)
    ours = build_model(name, num_bins=16, embedding_dim=8, embedding_layers=2).eval()
    load_wespeaker(ours, theirs.state_dict())
    frames = torch.randn(2, 33, 16)
    with torch.no_grad():
        torch.testing.assert_close(ours(frames), theirs(frames.clone())[-1], rtol=1e-5, atol=1e-5)
    assert set(to_wespeaker(ours.state_dict())) == set(theirs.state_dict())
    with pytest.raises(UserError, match=r"the network has no 'embedding\.0\.weight'"):
        load_wespeaker(build_model(name, num_bins=16, embedding_dim=8), theirs.state_dict())


@cache
def small_state() -> dict[str, torch.Tensor]:
    """A state dict under WeSpeaker's names, which nobody changes."""
    torch.manual_seed(3)
    return to_wespeaker(build_model("resnet18", base_width=2, num_bins=8, embedding_dim=4).state_dict())


@cache
def small_gemini() -> dict[str, torch.Tensor]:
    """A state dict under WeSpeaker's names; one block a stage."""
    torch.manual_seed(3)
    network = build_df_resnet(num_bins=8, embedding_dim=4, blocks=(1, 1, 1, 1), gemini=True)
    return to_wespeaker(network.state_dict())


def test_the_documented_names():
    """As peers describe the files, without WeSpeaker at hand."""
    keys = set(small_state())
    batch_norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {"conv1.weight", "seg_1.weight", "seg_1.bias", *(f"bn1.{part}" for part in batch_norm)}
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            for number in (1, 2):
                expected |= {f"layer{layer}.{block}.conv{number}.weight"}
                expected |= {f"layer{layer}.{block}.bn{number}.{part}" for part in batch_norm}
        if layer > 1:
            expected |= {f"layer{layer}.0.shortcut.0.weight"}
            expected |= {f"layer{layer}.0.shortcut.1.{part}" for part in batch_norm}
    assert keys == expected


def test_the_documented_names_of_gemini():
    batch_norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {"seg_1.weight", "seg_1.bias"}
    for layer in range(5):  # the stem and four downsamplings
        expected |= {f"downsample_layers.{layer}.0.weight"}
        expected |= {f"downsample_layers.{layer}.1.{part}" for part in batch_norm}
    for stage in range(4):
        for number in (1, 2, 3):
            expected |= {f"stages.{stage}.0.conv{number}.weight"}
            expected |= {f"stages.{stage}.0.bn{number}.{part}" for part in batch_norm}
    assert set(small_gemini()) == expected


@pytest.mark.parametrize("state", [small_state, small_gemini])
def test_the_classification_head_is_left_out(state):
    state = state()
    head = {
        "projection.weight": torch.zeros(17_982, 4),
        "projection.bias": torch.zeros(1, 1),
        "projection.trans.0.weight": torch.zeros(4, 4),
    }
    assert from_wespeaker({**head, **state}).keys() == from_wespeaker(state).keys()


def test_counters_that_averaging_made_floats_become_integers():
    state = small_state()
    counters = [key for key in state if key.endswith("num_batches_tracked")]
    assert len(counters) == 20
    averaged = {key: tensor.float() + 123_456 if key in counters else tensor for key, tensor in state.items()}
    ours = from_wespeaker(averaged)
    for key, tensor in ours.items():
        expected = torch.int64 if key.endswith("num_batches_tracked") else torch.float32
        assert tensor.dtype == expected
    network = build_model("resnet18", base_width=2, num_bins=8, embedding_dim=4)
    network.load_state_dict(ours)
    assert network.stem[1].num_batches_tracked.item() == 123_456


@pytest.mark.parametrize(
    "key",
    [
        "module.conv1.weight",
        "frontend.upstream.weight",
        "layer0.0.conv1.weight",
        "layer5.0.conv1.weight",
        "layer1.0.conv4.weight",
        "layer1.0.conv1.bias",
        "layer1.0.se.fc1.weight",
        "layer1.0.convs.0.weight",  # Res2Net
        "layer1.0.shortcut.0.bias",
        "layer1.conv.weight",  # ECAPA-TDNN
        "conv1.bias",
        "bn1.momentum",
        "seg_1.extra",
        "downsample_layers.1.0.weight",  # Gemini-DF-ResNet
        "projections.weight",
        "stages.0.0.conv1.weight",
        "",
    ],
)
def test_foreign_keys_are_refused(key):
    with pytest.raises(UserError, match=rf"^{key!r} .* WeSpeaker ResNet .* expected conv1, bn1, layer1 to layer4"):
        from_wespeaker({**small_state(), key: torch.zeros(1)})


@pytest.mark.parametrize(
    "key",
    [
        "conv1.weight",  # ResNet
        "layer1.0.conv1.weight",
        "downsample_layers.0.1.momentum",
        "downsample_layers.0.2.weight",
        "downsample_layers.1.0.bias",
        "downsample_layers.5.0.weight",
        "stages.0.0.0.weight",
        "stages.0.0.conv4.weight",
        "stages.0.0.shortcut.0.weight",
        "stages.4.0.conv1.weight",
    ],
)
def test_foreign_keys_in_a_gemini_are_refused(key):
    expected = r"downsample_layers\.0 to downsample_layers\.4, stages\.0 to stages\.3 and seg_1"
    with pytest.raises(UserError, match=rf"^{key!r} .* WeSpeaker Gemini-DF-ResNet .* expected {expected}"):
        from_wespeaker({**small_gemini(), key: torch.zeros(1)})


@pytest.mark.parametrize("state", [small_state, small_gemini])
@pytest.mark.parametrize(("key", "missing"), [("seg_2.weight", "seg_bn_1"), ("seg_bn_1.running_mean", "seg_2")])
def test_a_second_embedding_layer_that_is_not_whole(state, key, missing):
    with pytest.raises(UserError, match=rf"with two embedding layers has weights '{missing}\.\*', and there are none"):
        from_wespeaker({**state(), key: torch.zeros(4)})


@pytest.mark.parametrize(
    "key",
    [
        "conv1.weight",
        "stages.4.0.conv1.weight",
        "stages.0.0.f.conv1.weight",
        "stages.0.0.conv1.bias",
        "stem.0.bias",
        "stem.2.weight",
        "embedding.extra",
        "pooling.weight",
        "head.weight",
    ],
)
def test_weights_of_other_networks_have_no_name_there(key):
    with pytest.raises(UserError, match=rf"^{key!r} is not a weight of a WeSpeaker ResNet with .*; WeSpeaker's names"):
        to_wespeaker({**from_wespeaker(small_state()), key: torch.zeros(1)})


@pytest.mark.parametrize(
    "key", ["stages.0.0.conv1.weight", "stages.1.0.0.bias", "stages.0.1.shortcut.0.weight", "stages.4.1.conv1.weight"]
)
def test_weights_that_no_gemini_has_have_no_name_there(key):
    with pytest.raises(
        UserError, match=rf"^{key!r} is not a weight of a WeSpeaker Gemini-DF-ResNet with .*; WeSpeaker's names"
    ):
        to_wespeaker({**from_wespeaker(small_gemini()), key: torch.zeros(1)})


@pytest.mark.parametrize("name", ["df_resnet56", "revnet_tiny", "revnet46", "df_revnet66", "df_revnet89"])
def test_networks_that_are_not_theirs_have_no_names_there(name):
    with torch.device("meta"):
        weights = build_model(name).state_dict()
    with pytest.raises(UserError, match="WeSpeaker's names are known for ResNet, Gemini-DF-ResNet, ECAPA-TDNN"):
        to_wespeaker(weights)
