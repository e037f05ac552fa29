"""Singular values of a weight: what a rank keeps of it, and the rank that a network's layers get."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from svtoolkit.compression.factors import singular_values
from svtoolkit.errors import UserError


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Of a matrix (rows, columns).

    Attributes:
        values: singular values, float64, (min(rows, columns),), the largest first.
    """

    rows: int
    columns: int
    values: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> Spectrum:
        """Of a weight (out, in, kernel...), whose matrix is (out, in x kernel size)."""
        return cls(len(weight), weight[0].numel(), singular_values(weight))

    @property
    def size(self) -> int:
        """Values of the whole matrix."""
        return self.rows * self.columns

    @property
    def trace_norm_coefficient(self) -> float:
        """nu = (|s|_1 / |s|_2 - 1) / (sqrt(d) - 1) of the d singular values s (Kliegl et al. 2017, eq. 6).

        From 0, of rank one, to 1, of equal singular values, whatever the scale; 0 of a matrix of zeros.
        """
        norm = float(torch.linalg.vector_norm(self.values))
        if norm == 0:
            return 0.0
        ratio = float(self.values.sum()) / norm
        return (ratio - 1) / (math.sqrt(len(self.values)) - 1)

    @cached_property
    def explained(self) -> Tensor:
        """Share of the squares that the first values have, float64, one for each rank from 1 on."""
        squares = self.values.square().cumsum(0)
        return squares / squares[-1] if squares[-1] > 0 else torch.ones_like(squares)

    def rank_for(self, variance: float) -> int:
        """The smallest rank that explains so much of the variance, from above 0 to 1."""
        return min(1 + int((self.explained < variance - 1e-12).sum()), len(self.values))

    def error(self, rank: int) -> float:
        """|W - W'| / |W| in the Frobenius norm, of the nearest W' of a rank."""
        tail = self.values[rank:].square().sum()
        return math.sqrt(float(tail / self.values.square().sum())) if tail > 0 else 0.0

    def kept(self, rank: int) -> int:
        """Values that a layer of a rank has: those of U and V, or of the whole matrix where that is no more."""
        return min(rank * (self.rows + self.columns), self.size)

    def saves(self, rank: int) -> bool:
        return rank * (self.rows + self.columns) < self.size


def variance_within(spectra: Mapping[str, Spectrum], budget: float) -> float:
    """The largest share of the variance, the same in all layers, with which their values are within a budget.

    Raises:
        UserError: not even rank one of each is.
    """

    def kept(variance: float) -> int:
        return sum(spectrum.kept(spectrum.rank_for(variance)) for spectrum in spectra.values())

    steps = torch.cat([spectrum.explained for spectrum in spectra.values()]).unique().tolist()  # in order
    fitting, beyond = -1, len(steps)
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        if kept(steps[middle]) <= budget:
            fitting = middle
        else:
            beyond = middle
    if fitting < 0:
        least = sum(spectrum.kept(1) for spectrum in spectra.values())
        raise UserError(
            f"parameters leaves {max(0, round(budget))} for the layers that may become smaller, and of rank one they "
            f"have {least}; raise it, or name more layers"
        )
    return float(steps[fitting])


def choose_ranks(
    spectra: Mapping[str, Spectrum], *, variance: float | None, parameters: float | None = None, total: int = 0
) -> tuple[dict[str, int], float]:
    """Ranks by explained variance or by a budget; layers that would not become smaller are left out.

    Args:
        spectra: of the layers that may become smaller, whole or not.
        variance: share of each layer's variance, above 0, at most 1; None: what ``parameters`` allows.
        parameters: of the network in the end; up to 1 a share of ``total``.
        total: parameters of the network with these layers whole.

    Returns:
        the ranks, and the variance that they explain.

    Raises:
        UserError: a budget that is too small.
    """
    if variance is None:
        assert parameters is not None
        wanted = parameters * total if parameters <= 1 else parameters
        rest = total - sum(spectrum.size for spectrum in spectra.values())
        variance = variance_within(spectra, wanted - rest)
    ranks = {name: spectrum.rank_for(variance) for name, spectrum in spectra.items()}
    return {name: rank for name, rank in ranks.items() if spectra[name].saves(rank)}, variance
