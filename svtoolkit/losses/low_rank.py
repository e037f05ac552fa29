"""The state of a head with the matrix of its classes whole, or as a product."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from svtoolkit.compression.factors import split


def rows_of(weight: Tensor) -> Tensor:
    """The matrix of the classes: (classes, ..., n) -> (classes x ..., n)."""
    return weight.flatten(0, -2)


def head_with_rank(state: Mapping[str, Tensor], rank: int | None) -> dict[str, Tensor]:
    """The state of a head, with its matrix as the nearest product of a rank; None: whole.

    What has that rank already stays as it is.
    """
    weight, projection = state["weight"], state.get("projection")
    before = None if projection is None else len(projection)
    new = dict(state)
    if before == rank:
        return new
    if projection is not None:
        new["weight"] = weight = weight @ new.pop("projection")
    if rank is not None:
        u, new["projection"] = split(rows_of(weight), rank)
        new["weight"] = u.unflatten(0, weight.shape[:-1])
    return new
