"""The matrix of the classes as a product: the same losses at full rank, its state either way."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from svtoolkit.config import LossConfig, SGDConfig, SphereFace2Config, SubcenterLossConfig, TopKLossConfig
from svtoolkit.distributed.head_sharding import shard_head
from svtoolkit.distributed.world import ALONE
from svtoolkit.errors import UserError
from svtoolkit.losses import build_head
from svtoolkit.losses.low_rank import head_with_rank

DIM, CLASSES = 6, 20
SETTINGS = {
    "aam": LossConfig(),
    "am": LossConfig("am"),
    "softmax": LossConfig("softmax", margin=0.0, scale=1.0),
    "aam_subcenter": SubcenterLossConfig("aam_subcenter"),
    "aam_topk": TopKLossConfig("aam_topk"),
    "sphereface2": SphereFace2Config("sphereface2"),
}


def build(name: str, **changes):
    torch.manual_seed(1)
    settings = {key: value for key, value in asdict(SETTINGS[name]).items() if key != "shard"}
    return build_head(embedding_dim=DIM, num_classes=CLASSES, **{**settings, **changes})


@pytest.mark.parametrize("name", SETTINGS)
def test_at_full_rank_the_losses_are_those_of_the_whole_matrix(name):
    whole, low = build(name), build(name, rank=DIM)
    low.load_state_dict(head_with_rank(whole.state_dict(), DIM))
    assert low.num_classes == CLASSES
    torch.testing.assert_close(low.class_weights, whole.weight)
    embeddings, labels = torch.randn(5, DIM, requires_grad=True), torch.arange(5)
    for head in (whole, low):
        head.margin = SETTINGS[name].margin
    expected = torch.autograd.grad(whole(embeddings, labels).losses.sum(), embeddings)[0]
    torch.testing.assert_close(low(embeddings, labels).losses, whole(embeddings, labels).losses, rtol=1e-4, atol=1e-5)
    found = torch.autograd.grad(low(embeddings, labels).losses.sum(), embeddings)[0]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    back = head_with_rank(low.state_dict(), None)
    assert back.keys() == whole.state_dict().keys()
    torch.testing.assert_close(back["weight"], whole.weight.detach())


def test_a_rank_has_as_many_values_as_it_says_and_stays_as_it_is():
    head = build("aam", rank=2)
    assert sum(parameter.numel() for parameter in head.parameters()) == 2 * (CLASSES + DIM)
    state = head.state_dict()
    assert all(head_with_rank(state, 2)[name] is tensor for name, tensor in state.items())


@pytest.mark.parametrize("rank", [0, DIM + 1])
def test_a_rank_that_no_such_matrix_has(rank):
    with pytest.raises(UserError, match=rf"loss=aam: rank is {rank}, expected 1 to {DIM}, or null"):
        build("aam", rank=rank)


def test_it_is_not_divided_among_devices():
    with pytest.raises(UserError, match=r"loss.shard=true does not work with a matrix of the classes of low rank"):
        shard_head(build("aam", rank=3), SGDConfig(), ALONE)
