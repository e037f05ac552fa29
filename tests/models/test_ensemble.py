"""Networks beside each other: cosines that are means of theirs."""

from __future__ import annotations

import pytest
import torch

from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.padded import embed_padded, takes_padding

torch.set_num_threads(1)
MEMBERS = [
    {"name": "resnet10", "num_bins": 16, "embedding_dim": 8, "base_width": 4},
    {"name": "xvector", "num_bins": 16, "embedding_dim": 5},
]


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model("ensemble", num_bins=16, embedding_dim=13, members=MEMBERS).eval()


def test_a_cosine_is_the_mean_of_those_of_the_members(network):
    frames = torch.randn(2, 60, 16)
    first, second = network(frames).double()
    assert first.norm().item() == pytest.approx(1, abs=1e-6)
    cosines = [torch.cosine_similarity(*member(frames).double(), dim=0) for member in network.members]
    assert len(cosines) == 2
    assert (first @ second).item() == pytest.approx(sum(cosines).item() / 2, abs=1e-6)


def test_padded_utterances_have_the_embeddings_that_they_have_alone(network):
    assert takes_padding(network, 16)
    utterances = [torch.randn(frames, 16) for frames in (90, 61, 75)]
    alone = torch.cat([network(each.unsqueeze(0)) for each in utterances])
    torch.testing.assert_close(embed_padded(network, utterances), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (MEMBERS[:1], "an ensemble of 1, expected two members or more"),
        ([{"embedding_dim": 8}, MEMBERS[1]], "member 1 has no name"),
        ([*MEMBERS, {"name": "ge2e_lstm", "num_bins": 16, "embedding_dim": 3}], "member 3 is ge2e_lstm"),
        ([MEMBERS[0], MEMBERS[1] | {"num_bins": 24}], "member 2 takes 24 bins, expected 16"),
        ([MEMBERS[0], MEMBERS[1] | {"name": "resnet11"}], "resnet11"),
        (["resnet10", "resnet10"], "member 1 has no name"),
        (MEMBERS, "embedding_dim is 13, expected 20"),
    ],
)
def test_what_makes_no_ensemble(members, message):
    with pytest.raises(UserError, match=message):
        build_model("ensemble", num_bins=16, embedding_dim=20, members=members)
