"""Margin heads against their formulas in float64, at the ends of the cosine and under autocast."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.errors import UserError
from svtoolkit.losses import AAMHead, AMHead, ClassificationHead, SoftmaxHead, build_head

torch.set_num_threads(1)

HEADS = {"aam": AAMHead, "am": AMHead, "softmax": SoftmaxHead}
ALL = [*HEADS, "aam_subcenter", "aam_topk", "sphereface2"]


def make(name: str, embedding_dim: int = 6, num_classes: int = 5, *, margin: float = 0.2, scale: float = 32.0):
    torch.manual_seed(embedding_dim + num_classes)
    if name == "softmax":
        head = build_head(name, embedding_dim=embedding_dim, num_classes=num_classes, margin=0.0, scale=1.0)
        torch.nn.init.normal_(head.bias)
        return head
    head = build_head(name, embedding_dim=embedding_dim, num_classes=num_classes, margin=margin, scale=scale)
    head.margin = margin
    return head


def batch(rows: int = 7, embedding_dim: int = 6, num_classes: int = 5, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    embeddings = 3 * torch.randn(rows, embedding_dim, generator=generator)
    return embeddings, torch.randint(num_classes, (rows,), generator=generator)


def with_angle(degrees: float, weight: torch.Tensor) -> torch.Tensor:
    """An embedding (1, embedding_dim) at an angle to the first class."""
    axis = weight[0] / weight[0].norm()
    aside = weight[1] - (weight[1] @ axis) * axis
    radians = math.radians(degrees)
    return 2.5 * (math.cos(radians) * axis + math.sin(radians) * aside / aside.norm())[None]


def by_formula(name: str, head: ClassificationHead, embeddings: torch.Tensor, labels: torch.Tensor):
    """Losses, hits with and without margin (batch,) by the published formulas in float64."""
    x, w = embeddings.double().numpy(), head.weight.detach().double().numpy()
    losses, hits, plain_hits = [], [], []
    for row, label in zip(x, labels.tolist(), strict=True):
        if name == "softmax":
            similarities = np.array([row @ w[k] + float(head.bias[k].detach()) for k in range(len(w))])
        else:
            similarities = np.array([row @ w[k] / np.linalg.norm(row) / np.linalg.norm(w[k]) for k in range(len(w))])
        logits = similarities.copy()
        if name == "am":
            logits[label] -= head.margin
        if name == "aam":
            theta = math.acos(min(max(similarities[label], -1.0), 1.0))
            before_turn = theta < math.pi - head.margin
            straight = similarities[label] - (1.0 + math.cos(math.pi - head.margin))
            logits[label] = math.cos(theta + head.margin) if before_turn else straight
        scaled = head.scale * logits
        losses.append(scaled.max() + np.log(np.exp(scaled - scaled.max()).sum()) - scaled[label])
        hits.append(int(logits.argmax()) == label)
        plain_hits.append(int(similarities.argmax()) == label)
    return np.array(losses), np.array(hits), np.array(plain_hits)


def agrees_with_formula(name: str, head: ClassificationHead, embeddings: torch.Tensor, labels: torch.Tensor) -> None:
    output = head(embeddings, labels)
    losses, hits, plain_hits = by_formula(name, head, embeddings, labels)
    assert output.losses.dtype == torch.float32
    np.testing.assert_allclose(output.losses.detach().numpy(), losses, rtol=2e-4, atol=2e-5 * head.scale)
    np.testing.assert_array_equal(output.correct.numpy(), hits)
    np.testing.assert_array_equal(output.correct_no_margin.numpy(), plain_hits)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("seed", range(4))
def test_losses_and_hits(name, seed):
    head = make(name)
    agrees_with_formula(name, head, *batch(seed=seed))


@given(
    name=st.sampled_from(["aam", "am"]),
    margin=st.floats(0.0, 0.99),
    scale=st.floats(1.0, 64.0),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=80, deadline=None)
def test_any_margin_and_scale(name, margin, scale, seed):
    embeddings, labels = batch(seed=seed)
    head = make(name, margin=margin, scale=scale)
    losses, _, _ = by_formula(name, head, embeddings, labels)
    found = head(embeddings, labels)
    np.testing.assert_allclose(found.losses.detach().numpy(), losses, rtol=2e-4, atol=2e-5 * scale)
    plain = make(name, margin=0.0, scale=scale)(embeddings, labels)
    assert (found.losses >= plain.losses - 1e-4).all(), "a margin never makes the loss smaller"
    assert torch.equal(found.correct_no_margin, plain.correct)
    assert (found.correct <= found.correct_no_margin).all(), "a margin never makes a hit"


@pytest.mark.parametrize("margin", [0.1, 0.2, 0.5, 1.5])
@pytest.mark.parametrize("beyond", [-2.0, -0.1, 0.1, 2.0])
def test_aam_on_both_sides_of_the_turn(margin, beyond):
    """The turn is at theta = pi - margin; angles in degrees beyond it (negative: before it)."""
    head = make("aam", margin=margin)
    embeddings = with_angle(180 - math.degrees(margin) + beyond, head.weight.detach())
    agrees_with_formula("aam", head, embeddings, torch.tensor([0]))


@pytest.mark.parametrize("margin", [0.1, 0.2, 0.5, 1.5])
def test_aam_falls_without_a_jump_from_one_end_to_the_other(margin):
    head = make("aam", margin=margin).double()
    cosines = torch.linspace(1, -1, 20_001, dtype=torch.float64)
    values = head.with_margin(cosines)
    steps = values.diff()
    assert (steps < 0).all()
    # the slope of cos(theta + m) is steepest where sin(theta) is smallest, at the first of these points
    assert steps.abs().max() < 1e-4 + math.sqrt(2e-4)
    turn = math.cos(math.pi - margin)
    around = head.with_margin(torch.tensor([turn + 1e-12, turn - 1e-12], dtype=torch.float64))
    torch.testing.assert_close(around, torch.full_like(around, -1.0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["aam", "am"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("margin", [0.0, 0.2, 0.5])
def test_a_cosine_of_one_has_a_finite_loss_and_gradient(name, sign, margin):
    head = make(name, embedding_dim=4, num_classes=4, margin=margin)
    with torch.no_grad():
        head.weight.copy_(torch.eye(4))
    embeddings = (sign * torch.eye(4)[:2]).requires_grad_()
    assert head.similarities(embeddings).diagonal().tolist() == [sign, sign]
    output = head(embeddings, torch.tensor([0, 1]))
    output.losses.sum().backward()
    assert output.losses.isfinite().all()
    assert embeddings.grad.isfinite().all()
    assert head.weight.grad.isfinite().all()
    losses, _, _ = by_formula(name, head, embeddings.detach(), torch.tensor([0, 1]))
    # the sine is held above sqrt(1e-7) = 3e-4
    np.testing.assert_allclose(
        output.losses.detach().numpy(), losses, rtol=1e-3, atol=1e-6 + head.scale * 4e-4 * margin
    )


@pytest.mark.parametrize("name", ALL)
def test_an_embedding_of_zeros_has_a_finite_loss_and_gradient(name):
    head = make(name)
    embeddings = torch.zeros(2, 6, requires_grad=True)
    head(embeddings, torch.tensor([0, 1])).losses.sum().backward()
    assert embeddings.grad.isfinite().all()
    assert head.weight.grad.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_the_gradient_agrees_with_finite_differences_in_float64(name):
    head = make(name, scale=4.0).double()
    embeddings, labels = batch(rows=3)
    embeddings = embeddings.double().requires_grad_()
    parameters = tuple(head.parameters())
    assert torch.autograd.gradcheck(lambda *inputs: head(inputs[0], labels).losses, (embeddings, *parameters))


@pytest.mark.parametrize("name", ALL)
def test_the_float32_gradient_agrees_with_the_float64_one(name):
    embeddings, labels = batch(rows=8)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        head, x = make(name).to(dtype), embeddings.clone().to(dtype).requires_grad_()
        head(x, labels).losses.mean().backward()
        gradients.append([x.grad.double(), *(parameter.grad.double() for parameter in head.parameters())])
    for single, double in zip(*gradients, strict=True):
        assert (single - double).norm() < 1e-4 * double.norm()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(name, dtype):
    head = make(name)
    embeddings, labels = batch()
    embeddings = embeddings.to(dtype)
    outside = head(embeddings.float(), labels)
    with torch.autocast("cpu", dtype=dtype):
        inside = head(embeddings, labels)
    assert inside.losses.dtype == torch.float32
    for found, expected in zip(inside, outside, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["aam", "am"])
def test_the_length_of_embeddings_and_weights_does_not_matter(name):
    head = make(name)
    embeddings, labels = batch()
    before = head(embeddings, labels)
    with torch.no_grad():
        head.weight.mul_(torch.tensor([[0.1], [2.0], [30.0], [1.0], [7.0]]))
    after = head(embeddings * torch.linspace(0.1, 50, 7)[:, None], labels)
    torch.testing.assert_close(after.losses, before.losses, rtol=1e-4, atol=1e-4)


def test_the_class_can_be_right_without_the_margin_alone():
    """At equal cosines to two classes but for 0.05, a margin of 0.2 turns the hit into a miss."""
    head = make("am", embedding_dim=2, num_classes=2, margin=0.2)
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
    output = head(torch.tensor([[1.0, 0.95], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 0]))
    assert output.correct.tolist() == [False, True, False]
    assert output.correct_no_margin.tolist() == [True, True, False]


def test_aam_is_wespeakers(wespeaker):
    embeddings, labels = batch(rows=64, num_classes=5, seed=3)
    for margin in (0.0, 0.2, 0.5):
        head = make("aam", margin=margin)
        embeddings[:2] = torch.cat([with_angle(degrees, head.weight.detach()) for degrees in (178, 160)])
        labels[:2] = 0
        theirs = wespeaker("models.projections").ArcMarginProduct(6, 5, scale=32.0, margin=margin)
        theirs.load_state_dict(head.state_dict())
        expected = torch.nn.functional.cross_entropy(theirs(embeddings, labels), labels, reduction="none")
        torch.testing.assert_close(head(embeddings, labels).losses, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", HEADS)
def test_built_by_name(name):
    head = build_head(name, embedding_dim=8, num_classes=30, margin=0.0, scale=1.0)
    assert type(head) is HEADS[name]
    assert head.weight.shape == (30, 8)
    assert head.margin == 0.0
    # Xavier: uniform within sqrt(6 / (8 + 30))
    assert 0.9 * math.sqrt(6 / 38) < head.weight.abs().max() <= math.sqrt(6 / 38)


def test_the_margin_is_set_by_its_schedule_and_the_scale_at_once():
    head = build_head("aam", embedding_dim=8, num_classes=3, margin=0.3, scale=30.0)
    assert (head.margin, head.scale) == (0.0, 30.0)


@pytest.mark.parametrize(
    ("name", "margin", "scale", "message"),
    [
        ("arcface", 0.2, 32.0, "(all: aam, aam_subcenter, aam_topk, am, sphereface2, softmax)"),
        (
            "softmax",
            0.2,
            1.0,
            "loss=softmax: there is no margin in a plain softmax, found margin=0.2; use",
        ),
        (
            "softmax",
            0.0,
            32.0,
            "loss=softmax: there is no scale in a plain softmax, found scale=32.0; use",
        ),
        ("aam", -0.1, 32.0, "loss=aam: margin is -0.1, expected 0 up to below 1.571"),
        ("aam", math.pi / 2, 32.0, "expected 0 up to below 1.571"),
        ("aam", math.nan, 32.0, "loss=aam: margin is nan"),
        ("am", 1.0, 32.0, "loss=am: margin is 1.0, expected 0 up to below 1"),
        ("am", 0.2, 0.0, "loss=am: scale is 0.0, expected a finite number above 0"),
        ("aam", 0.2, -1.0, "loss=aam: scale is -1.0, expected a finite number above 0"),
        ("aam", 0.2, math.nan, "loss=aam: scale is nan, expected a finite number"),
        ("aam", 0.2, math.inf, "loss=aam: scale is inf, expected a finite number"),
    ],
)
def test_what_makes_no_head(name, margin, scale, message):
    with pytest.raises(UserError) as caught:
        build_head(name, embedding_dim=8, num_classes=3, margin=margin, scale=scale)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", HEADS)
def test_what_a_run_asks_of_a_whole_head(name):
    """Is torch's own answer: nothing is exchanged with other processes."""
    head, network = make(name), torch.nn.Linear(6, 6)
    embeddings, labels = batch()
    assert (head.loss_name, head.num_classes, head.is_replicated) == (name, 5, True)
    losses = head(network(embeddings), labels).losses
    assert torch.equal(head.trial_losses(network(embeddings), labels), losses)
    losses.sum().backward()
    parameters = [*network.parameters(), *head.parameters()]
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])
    assert torch.equal(head.clip_grad_norm_(network.parameters(), 0.5 * float(norm)), norm)
    clipped = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])
    assert float(clipped) == pytest.approx(0.5 * float(norm), rel=1e-5)
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    optimizer.step()
    state = head.gather_optimizer_state(optimizer)
    other = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    head.load_optimizer_state(other, state)
    for ours, theirs in zip(state["state"].values(), other.state_dict()["state"].values(), strict=True):
        assert torch.equal(ours["momentum_buffer"], theirs["momentum_buffer"])
    assert head.gather_head_state().keys() == head.state_dict().keys()
    assert not head.build_scaler(torch.device("cpu"), enabled=False).is_enabled()
