"""Sub-centers, the penalty on the hardest classes and SphereFace2: by formulas in float64, and against WeSpeaker."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from svtoolkit.config import LossConfig, SGDConfig
from svtoolkit.distributed.head_sharding import shard_head
from svtoolkit.distributed.world import World
from svtoolkit.errors import UserError
from svtoolkit.losses import HeadOutput, build_head

torch.set_num_threads(1)

DIM, CLASSES, ROWS = 6, 9, 8


def make(name: str, margin: float, **options):
    torch.manual_seed(3)
    head = build_head(name, embedding_dim=DIM, num_classes=CLASSES, margin=margin, scale=16.0, **options)
    head.margin = margin
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return head


def batch():
    generator = torch.Generator().manual_seed(5)
    return torch.randn(ROWS, DIM, generator=generator), torch.randint(CLASSES, (ROWS,), generator=generator)


def detached(output: HeadOutput) -> HeadOutput:
    return HeadOutput(*(value.detach() for value in output))


def cosines_of(head, x) -> np.ndarray:
    """(batch, classes), of the closest center of each class, in float64."""
    weight = head.weight.detach().double().numpy().reshape(CLASSES, -1, DIM)
    weight = weight / np.linalg.norm(weight, axis=2, keepdims=True)
    x = x.double().numpy() / np.linalg.norm(x.double().numpy(), axis=1, keepdims=True)
    return np.einsum("bd,ckd->bck", x, weight).max(axis=2)


def angular(cosine: float, margin: float) -> float:
    if cosine > math.cos(math.pi - margin):
        return math.cos(math.acos(cosine) + margin)
    return cosine - 1 - math.cos(math.pi - margin)


@pytest.mark.parametrize("margin", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("centers", [1, 3])
@pytest.mark.parametrize("top_k", [None, 2, 50])
def test_centers_and_the_hardest_classes(margin, centers, top_k):
    options = {} if top_k is None else {"top_k": top_k, "top_k_margin": 0.1}
    head = make("aam_subcenter" if top_k is None else "aam_topk", margin, centers=centers, **options)
    x, labels = batch()
    found, cosines = detached(head(x, labels)), cosines_of(head, x)
    for row, label in enumerate(labels.tolist()):
        logits = cosines[row].copy()
        logits[label] = angular(cosines[row, label], margin)
        if top_k is not None:
            others = [place for place in np.argsort(-cosines[row]) if place != label][:top_k]
            for place in others:
                logits[place] = math.cos(math.acos(cosines[row, place]) - 0.1 * margin / 0.2)
        scaled = 16.0 * logits
        expected = np.log(np.exp(scaled - scaled.max()).sum()) + scaled.max() - scaled[label]
        assert float(found.losses[row]) == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert bool(found.correct[row]) == (logits.argmax() == label)
        assert bool(found.correct_no_margin[row]) == (cosines[row].argmax() == label)


@pytest.mark.parametrize("of_angle", [False, True])
@pytest.mark.parametrize(("margin", "balance", "power"), [(0.0, 0.5, 1), (0.2, 0.7, 3), (0.4, 0.9, 2)])
def test_binary_decisions_of_all_classes(of_angle, margin, balance, power):
    head = make("sphereface2", margin, balance=balance, power=power, angular=of_angle)
    x, labels = batch()
    found, cosines, bias = detached(head(x, labels)), cosines_of(head, x), float(head.bias.detach())

    def spread(cosine: float) -> float:
        return 2 * ((cosine + 1) / 2) ** power - 1

    for row, label in enumerate(labels.tolist()):
        expected, decided = 0.0, []
        for place, cosine in enumerate(cosines[row]):
            if place == label:
                value = spread(angular(cosine, margin)) if of_angle else spread(cosine) - margin
                expected += balance * math.log1p(math.exp(-(16.0 * value + bias)))
            else:
                value = spread(math.cos(math.acos(cosine) - margin)) if of_angle else spread(cosine) + margin
                expected += (1 - balance) * math.log1p(math.exp(16.0 * value + bias))
            decided.append(value)
        assert float(found.losses[row]) == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert bool(found.correct[row]) == (int(np.argmax(decided)) == label)


@pytest.mark.parametrize("margin", [0.0, 0.2, 0.35])
def test_they_are_those_of_wespeaker(wespeaker, margin):
    theirs = wespeaker("models.projections")
    x, labels = batch()
    ours = make("aam_topk", margin, centers=3, top_k=5, top_k_margin=0.06)
    other = theirs.ArcMarginProduct_intertopk_subcenter(DIM, CLASSES, scale=16.0, margin=margin, K=3, k_top=5, mp=0.06)
    other.weight.data.copy_(ours.weight.data.flatten(0, 1))
    other.update(margin)
    expected = torch.nn.functional.cross_entropy(other(x, labels), labels, reduction="none")
    torch.testing.assert_close(ours(x, labels).losses, expected, rtol=1e-4, atol=1e-4)
    for of_angle, kind in ((False, "C"), (True, "A")):
        ours = make("sphereface2", margin, angular=of_angle)
        other = theirs.SphereFace2(DIM, CLASSES, scale=16.0, margin=margin, margin_type=kind)
        other.load_state_dict(ours.state_dict())
        torch.testing.assert_close(ours(x, labels).losses.mean(), other(x, labels)[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("aam_subcenter", {"centers": 0}, "loss=aam_subcenter: centers is 0, expected 1 or more"),
        ("aam_topk", {"top_k": 0}, "loss=aam_topk: top_k is 0, expected 1 or more"),
        ("aam_topk", {"top_k_margin": -0.1}, "loss=aam_topk: top_k_margin is -0.1, expected radians from 0"),
        ("sphereface2", {"balance": 1.0}, "loss=sphereface2: balance is 1.0, expected a weight between 0 and 1"),
        ("sphereface2", {"power": 0}, "loss=sphereface2: power is 0, expected 1 or more"),
        ("aam", {"centers": 3}, "centers"),
    ],
)
def test_settings_out_of_range_are_refused(name, options, message):
    with pytest.raises(UserError, match=message):
        make(name, 0.2, **options)


def test_a_margin_of_a_spread_cosine_ends_at_one():
    with pytest.raises(UserError, match=r"loss=sphereface2: margin is 1\.2, expected 0 up to below 1"):
        make("sphereface2", 1.2)
    make("sphereface2", 1.2, angular=True)


@pytest.mark.parametrize("name", ["aam_topk", "sphereface2"])
def test_what_compares_all_classes_is_not_sharded(name):
    assert LossConfig(name="aam").shard is False
    with pytest.raises(UserError, match=f"loss.shard=true does not work with loss={name}"):
        shard_head(make(name, 0.2), SGDConfig(), World(0, 2))


def test_shards_of_centers_have_the_rows_of_their_classes():
    head = make("aam_subcenter", 0.2)
    weight = head.weight.detach().clone()
    shard = shard_head(head, SGDConfig(), World(1, 2))
    torch.testing.assert_close(shard.local.weight, weight[shard.shard.start : shard.shard.stop])
