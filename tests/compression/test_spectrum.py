"""The trace-norm coefficient, explained variance and budgets, against what the formulas and torch's SVD say."""

from __future__ import annotations

import math

import pytest
import torch

from svtoolkit.compression.factors import singular_values, split
from svtoolkit.compression.spectrum import Spectrum, choose_ranks
from svtoolkit.errors import UserError


def with_values(values: list[float], rows: int, columns: int) -> torch.Tensor:
    """A matrix of given singular values."""
    generator = torch.Generator().manual_seed(len(values))
    left, right = (
        torch.linalg.qr(torch.randn(size, len(values), generator=generator, dtype=torch.float64)).Q
        for size in (rows, columns)
    )
    return left * torch.tensor(values, dtype=torch.float64) @ right.T


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (12, 12), (6, 4, 3), (4, 3, 5, 5)])
def test_singular_values_are_those_of_torch(shape):
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    theirs = torch.linalg.svdvals(weight.flatten(1).double())
    torch.testing.assert_close(singular_values(weight), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (6, 4, 3), (4, 3, 5, 5)])
def test_the_truncated_product_is_the_nearest_one_and_balanced(shape):
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    left, values, right = torch.linalg.svd(weight.flatten(1), full_matrices=False)
    for rank in range(1, len(values) + 1):
        u, v = split(weight, rank)
        nearest = left[:, :rank] * values[:rank] @ right[:rank]
        torch.testing.assert_close(u.flatten(1) @ v.flatten(1), nearest)
        torch.testing.assert_close(u.square().sum(), v.square().sum())
        torch.testing.assert_close((u.square().sum() + v.square().sum()) / 2, values[:rank].sum())


def test_no_other_factors_have_smaller_squares_than_those_of_the_svd():
    """The variational identity: (|U|^2 + |V|^2) / 2 >= |U V|_*, with equality for the balanced SVD."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(7, 11, generator=generator, dtype=torch.float64)
    trace_norm = torch.linalg.svdvals(weight).sum()
    u, v = split(weight, 7)
    torch.testing.assert_close((u.square().sum() + v.square().sum()) / 2, trace_norm)
    for _ in range(20):
        change = torch.eye(7, dtype=torch.float64) + 0.3 * torch.randn(7, 7, generator=generator, dtype=torch.float64)
        other_u, other_v = u @ change, torch.linalg.solve(change, v)
        torch.testing.assert_close(other_u @ other_v, weight)
        assert (other_u.square().sum() + other_v.square().sum()) / 2 > trace_norm


def test_the_coefficient_is_0_for_rank_one_1_for_equal_values_and_the_same_at_any_scale():
    for rows, columns in ((9, 30), (30, 9)):
        assert Spectrum.of(with_values([3.0], rows, columns)).trace_norm_coefficient == pytest.approx(0, abs=1e-6)
        assert Spectrum.of(with_values([2.0] * 9, rows, columns)).trace_norm_coefficient == pytest.approx(1, abs=1e-9)
        weight = with_values([5.0, 2.0, 1.0, 0.1], rows, columns)
        by_hand = (8.1 / math.sqrt(25 + 4 + 1 + 0.01) - 1) / (3 - 1)
        for scale in (1e-6, -1.0, 1e6):
            found = Spectrum.of(scale * weight).trace_norm_coefficient
            assert found == pytest.approx(by_hand, abs=1e-6)
            assert 0 < found < 1
    assert Spectrum.of(torch.zeros(4, 6)).trace_norm_coefficient == 0


def test_ranks_by_explained_variance_and_what_they_lose():
    spectrum = Spectrum.of(with_values([4.0, 2.0, 1.0, 1.0, 0.0], 5, 50))  # squares 16, 4, 1, 1
    assert [spectrum.rank_for(share) for share in (0.5, 16 / 22, 0.73, 20 / 22, 0.95, 1.0)] == [1, 1, 2, 2, 3, 4]
    assert spectrum.error(1) == pytest.approx(math.sqrt(6 / 22))
    assert spectrum.error(4) == pytest.approx(0, abs=1e-7)
    assert (spectrum.kept(2), spectrum.kept(4), spectrum.kept(5)) == (110, 220, 250)
    assert spectrum.saves(4)
    assert not spectrum.saves(5)


def test_a_budget_is_filled_and_not_exceeded():
    generator = torch.Generator().manual_seed(4)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in (("a", (20, 60)), ("b", (30, 200)))}
    spectra = {name: Spectrum.of(weight) for name, weight in weights.items()}
    total = 20 * 60 + 30 * 200 + 1000
    for share in (0.2, 0.5, 0.9):
        ranks, variance = choose_ranks(spectra, variance=None, parameters=share, total=total)
        kept = 1000 + sum(spectrum.kept(ranks.get(name, 99)) for name, spectrum in spectra.items())
        assert kept <= share * total
        more, _ = choose_ranks(spectra, variance=variance + 0.02, total=total)
        assert 1000 + sum(spectrum.kept(more.get(name, 99)) for name, spectrum in spectra.items()) > share * total
        assert (ranks, variance) == choose_ranks(spectra, variance=None, parameters=share * total, total=total)
    assert choose_ranks(spectra, variance=1.0, total=total)[0] == {}  # nothing would become smaller
    with pytest.raises(UserError, match=r"parameters leaves 0 for the layers .* of rank one they have 310; raise it"):
        choose_ranks(spectra, variance=None, parameters=1000, total=total)
