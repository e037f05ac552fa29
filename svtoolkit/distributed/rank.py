"""Which of several processes this one is, as torchrun and our own launcher tell it; needs nothing of torch."""

from __future__ import annotations

import os
from typing import NamedTuple, NoReturn

from svtoolkit.errors import UserError

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Rank(NamedTuple):
    """A process among those that train together.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        local_rank: its number on its machine.
        local_size: how many are on its machine.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int


def rank_in_environment() -> Rank | None:
    """The rank that the environment gives; None: this process was started alone.

    Raises:
        UserError: some of the variables are there and others are not, or one is no number or no possible one.
    """
    found = {name: os.environ[name] for name in RANK_VARIABLES if os.environ.get(name)}
    if "RANK" not in found and "WORLD_SIZE" not in found:
        return None
    missing = [name for name in RANK_VARIABLES if name not in found]
    if missing:
        raise UserError(
            f"{', '.join(found)} are set and {', '.join(missing)} are not; start the run with torchrun, "
            "which sets all, or unset them"
        )
    try:
        rank = Rank(*(int(found[name]) for name in RANK_VARIABLES[:4]))
    except ValueError as error:
        raise UserError(
            f"expected numbers in {', '.join(RANK_VARIABLES[:4])}, found {found}; start the run with torchrun, "
            "which sets all"
        ) from error
    _check_rank(rank, found["MASTER_PORT"])
    return rank


def _check_rank(rank: Rank, port: str) -> None:
    def refuse(what: str) -> NoReturn:
        raise UserError(f"{what}; start the run with torchrun, which sets all, or unset {', '.join(RANK_VARIABLES)}")

    names = RANK_VARIABLES
    for name, number, size_name, size in zip(names[:4:2], rank[::2], names[1:4:2], rank[1::2], strict=True):
        if size < 1:
            refuse(f"{name} is {number}, but {size_name} is {size}, expected 1 or more")
        if not 0 <= number < size:
            refuse(f"{name} is {number}, expected 0 to {size - 1} where {size_name} is {size}")
    if not (port.isdecimal() and 0 < int(port) < 2**16):
        refuse(f"MASTER_PORT is {port!r}, expected a number from 1 to 65535")
