"""The angular prototypical loss: by its formula in float64, and which crops it compares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.config import AngularPrototypicalConfig, PairwiseConfig
from svtoolkit.errors import UserError
from svtoolkit.losses import AngularPrototypical, build_pairwise

torch.set_num_threads(1)

DIM = 6


def term(crops: int = 2, scale: float = 10.0) -> AngularPrototypical:
    return AngularPrototypical(crops=crops, scale=scale, weight=1.0)


def embeddings(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_formula(x: np.ndarray, w: float, b: float) -> np.ndarray:
    """(tuples, crops, dim) -> the loss of each tuple, of the paper: S[j, k] = w cos(x[j, M], c[k]) + b."""
    losses = []
    for j in range(len(x)):
        scores = []
        for k in range(len(x)):
            c = x[k, :-1].mean(axis=0)
            scores.append(w * x[j, -1] @ c / (np.linalg.norm(x[j, -1]) * np.linalg.norm(c)) + b)
        losses.append(-np.log(np.exp(scores[j]) / np.exp(scores).sum()))
    return np.array(losses)


@pytest.mark.parametrize("crops", [2, 3, 5])
@pytest.mark.parametrize(("w", "b"), [(10.0, -5.0), (1.5, 0.0), (30.0, 7.0)])
def test_the_loss_is_that_of_the_paper_whose_offset_cancels(crops, w, b):
    x = embeddings(7 * crops)
    output = term(crops, w)(x, torch.arange(7).repeat_interleave(crops))
    expected = by_formula(x.reshape(7, crops, DIM).numpy(), w, b)
    np.testing.assert_allclose(output.losses.detach().reshape(7, crops), np.tile(expected, (crops, 1)).T, rtol=1e-6)
    assert output.counted.all()


def test_gradients_are_those_of_finite_differences():
    x = embeddings(8).requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0, 0])
    compared = term()
    with torch.no_grad():
        compared.scale.data = compared.scale.double()
    assert torch.autograd.gradcheck(lambda x, scale: compared(x, labels).losses, (x, compared.scale))


def test_tuples_of_several_classes_are_left_out():
    x, labels = embeddings(10), torch.tensor([3, 3, 5, 6, 5, 5, 7, 8, 9, 9])
    output = term()(x, labels)
    alone = term()(x[[0, 1, 4, 5, 8, 9]], labels[[0, 1, 4, 5, 8, 9]])
    assert output.counted.tolist() == [True, False, True, False, True]
    assert not output.losses[[2, 3, 6, 7]].any()
    torch.testing.assert_close(output.losses[[0, 1, 4, 5, 8, 9]], alone.losses)
    assert output.correct[[0, 2, 4]].tolist() == alone.correct.tolist()


def test_another_tuple_of_the_same_class_is_no_prototype_to_go_away_from():
    x, labels = embeddings(8), torch.tensor([3, 3, 4, 4, 3, 3, 5, 5])
    output = term()(x, labels)
    for own, compared in ((0, [0, 1, 3]), (2, [2, 1, 3])):
        rows = [row for number in compared for row in (2 * number, 2 * number + 1)]
        expected = term()(x[rows], torch.arange(3).repeat_interleave(2)).losses[0]
        torch.testing.assert_close(output.losses[2 * own], expected)


@pytest.mark.parametrize("labels", [[1, 1, 1, 1], [1, 2, 3, 4], [1, 1, 2, 3]])
def test_without_another_class_there_is_no_loss_and_a_gradient_of_zero(labels):
    compared, x = term(), embeddings(4).requires_grad_()
    output = compared(x, torch.tensor(labels))
    assert not output.losses.any()
    assert not output.counted.any()
    assert not output.correct.any()
    output.losses.sum().backward()
    assert not x.grad.any()
    assert compared.scale.grad == 0, "which processes that train together average"


@given(st.integers(2, 5), st.integers(2, 4), st.integers(0, 99), st.floats(0.01, 100))
@settings(max_examples=40, deadline=None)
def test_neither_length_nor_order_changes_it_and_it_is_bounded(tuples, crops, seed, length):
    x, labels = embeddings(tuples * crops, seed), torch.arange(tuples).repeat_interleave(crops)
    losses = term(crops)(x, labels).losses
    assert (losses >= 0).all()
    assert (losses <= 20 + np.log(tuples)).all()  # cosines of -1 and 1, times 10
    torch.testing.assert_close(term(crops)(length * x, labels).losses, losses)
    order = torch.randperm(tuples, generator=torch.Generator().manual_seed(seed))
    moved = (crops * order[:, None] + torch.arange(crops)).ravel()
    torch.testing.assert_close(term(crops)(x[moved], labels[moved]).losses, losses[moved])


def test_it_is_computed_in_float32_within_autocast():
    x, labels = embeddings(8).bfloat16(), torch.arange(4).repeat_interleave(2)
    with torch.autocast("cpu", torch.bfloat16):
        losses = term()(x, labels).losses
    assert losses.dtype == torch.float32
    assert torch.equal(losses, term()(x.float(), labels).losses)


def test_accuracy_is_of_tuples():
    x = torch.eye(6, dtype=torch.float64)[[0, 0, 1, 1, 2, 0]]
    output = term()(x, torch.tensor([0, 0, 1, 1, 2, 2]))
    assert output.correct.tolist() == [True, True, False]


def test_a_scale_below_zero_is_one_of_almost_zero():
    compared, labels = term(), torch.arange(3).repeat_interleave(2)
    with torch.no_grad():
        compared.scale.fill_(-3.0)
    expected = torch.full((6,), np.log(3.0), dtype=torch.float64)
    torch.testing.assert_close(compared(embeddings(6), labels).losses, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": 0.0}, r"pairwise\.weight is 0\.0, expected a number above 0"),
        ({"scale": -1.0}, r"pairwise\.scale is -1\.0, expected a number above 0"),
        ({"crops": 1}, r"pairwise\.crops is 1, expected 2 or more of a class"),
    ],
)
def test_settings_that_make_no_term_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        build_pairwise(AngularPrototypicalConfig("angular_prototypical", **changes))
    assert build_pairwise(PairwiseConfig()) is None
