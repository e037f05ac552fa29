"""SpeechBrain's networks for speakers against its own code: its weights under our names, the same embeddings."""

from __future__ import annotations

import pytest
import torch
from foreign_networks import assert_same_in_training, assert_same_of_all_lengths, randomise
from network_material import narrow, on_meta
from speechbrain_original import as_published, original
from torch import nn

from svtoolkit.checkpoints.speechbrain import from_speechbrain, load_speechbrain, to_speechbrain
from svtoolkit.errors import UserError

torch.set_num_threads(1)

BINS, DIM = 8, 8

SMALL = {
    "sb_ecapa_tdnn": ("ECAPA_TDNN", {"input_size": BINS, "channels": [16, 16, 16, 16, 48]}),
    "sb_xvector": ("Xvector", {"in_channels": BINS, "tdnn_channels": [16, 16, 16, 16, 1500]}),
    "sb_resnet": ("ResNet", {"input_size": BINS, "channels": [4, 4, 8, 8], "block_sizes": [1, 2, 1, 2]}),
}
"""Our name -> their class and its arguments for the narrow network of ours."""

PUBLISHED = {
    "sb_ecapa_tdnn": ("ECAPA_TDNN", {"input_size": 80, "channels": [1024] * 4 + [3072]}, 80, 192, 20.768),
    "sb_xvector": ("Xvector", {"in_channels": 24}, 24, 512, 4.212),
    "sb_resnet": ("ResNet", {"input_size": 80}, 80, 256, 15.438),
}
"""Our name -> their class and arguments, mel bins, embedding_dim, millions of parameters."""


def theirs_of(name: str, arguments: dict, embedding_dim: int) -> nn.Module:
    return as_published(getattr(original(), name)(**arguments, lin_neurons=embedding_dim))


@pytest.fixture(params=SMALL)
def pair(request) -> tuple[nn.Module, nn.Module]:
    """Ours with the weights of theirs, and theirs."""
    torch.manual_seed(1)
    theirs = randomise(theirs_of(*SMALL[request.param], DIM))
    ours = narrow(request.param, num_bins=BINS, embedding_dim=DIM)
    load_speechbrain(ours, theirs.state_dict())
    return ours, theirs


def test_equal_embeddings(pair):
    assert_same_of_all_lengths(*pair, BINS)


def test_equal_embeddings_and_statistics_in_training(pair):
    assert_same_in_training(*pair, BINS, to_speechbrain)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_networks_have_its_names_and_shapes(name):
    theirs, arguments, num_bins, embedding_dim, millions = PUBLISHED[name]
    with torch.device("meta"):
        their_state = theirs_of(theirs, arguments, embedding_dim).state_dict()
    ours = on_meta(name, num_bins=num_bins, embedding_dim=embedding_dim)
    shapes = {key: tensor.shape for key, tensor in their_state.items()}
    assert {key: tensor.shape for key, tensor in to_speechbrain(ours.state_dict()).items()} == shapes
    assert {key: tensor.shape for key, tensor in from_speechbrain(their_state).items()} == {
        key: tensor.shape for key, tensor in ours.state_dict().items()
    }
    assert round(sum(parameter.numel() for parameter in ours.parameters()) / 1e6, 3) == millions


def test_the_noise_of_an_x_vector_is_the_only_difference():
    """SpeechBrain adds 1e-5 to 9e-5 to every pooled mean, anew each time: no more than that can be between the two."""
    torch.manual_seed(1)
    theirs = randomise(original().Xvector(**SMALL["sb_xvector"][1], lin_neurons=DIM)).eval()
    ours = narrow("sb_xvector", num_bins=BINS, embedding_dim=DIM).eval()
    load_speechbrain(ours, theirs.state_dict())
    frames = torch.randn(2, 58, BINS)
    with torch.no_grad():
        found, expected, again = ours(frames), theirs(frames)[:, 0], theirs(frames)[:, 0]
        of_means = ours.embedding.weight[:, :1500].abs().sum(1)
    assert not torch.equal(expected, again)
    assert bool(((found - expected).abs() <= 9.01e-5 * of_means + 1e-6).all())


@pytest.mark.parametrize(("name", "least"), [("sb_ecapa_tdnn", 5), ("sb_xvector", 4)])
def test_an_utterance_that_is_too_short_to_be_reflected(name, least):
    network = narrow(name, num_bins=BINS, embedding_dim=DIM).eval()
    assert network(torch.randn(1, least, BINS)).isfinite().all()
    with pytest.raises(
        UserError, match=rf"^an utterance has {least - 1} frames, and model={name} needs {least} or more: leave out"
    ):
        network(torch.randn(1, least - 1, BINS))


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("sb_ecapa_tdnn", 20, "expected a multiple of 8"),
        ("sb_xvector", 0, "expected a whole number of 1 or more"),
        ("sb_resnet", -1, "expected a whole number of 1 or more"),
    ],
)
def test_a_width_that_is_none(name, width, expected):
    with pytest.raises(UserError, match=rf"^network {name}: base_width is {width}, {expected}$"):
        on_meta(name, base_width=width)


def test_names_that_it_does_not_have():
    weights = to_speechbrain(narrow("sb_ecapa_tdnn", num_bins=BINS, embedding_dim=DIM).state_dict())
    assert weights["fc.conv.weight"].shape == (DIM, 96, 1)
    with pytest.raises(UserError, match=r"^'fc\.bn\.weight' is not a weight of a SpeechBrain ECAPA-TDNN with mfa"):
        from_speechbrain({**weights, "fc.bn.weight": torch.zeros(1)})
    with pytest.raises(UserError, match=r"has weights 'mfa\.conv\.conv\.\*', 'mfa\.norm\.norm\.\*', and there"):
        from_speechbrain({name: tensor for name, tensor in weights.items() if not name.startswith("mfa.")})
    with pytest.raises(UserError, match="SpeechBrain's names are known for ECAPA-TDNN, x-vector network, ResNet"):
        to_speechbrain({"mixings.0.w": torch.zeros(1)})
