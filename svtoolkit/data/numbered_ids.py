"""Ids of a list that stand in it many times, each once with a number for its places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np


class NumberedIds(Sequence[str]):
    """Ids of which there are few, and a number for each place: a string is looked up where it is asked for.

    Args:
        names: the ids, no two alike.
        numbers: places in ``names``, int, shape (length,).
    """

    def __init__(self, names: Sequence[str], numbers: np.ndarray) -> None:
        self.names, self.numbers = names, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self.names[number] for number in self.numbers[place].tolist()]
        return self.names[self.numbers[place]]

    def __iter__(self) -> Iterator[str]:
        return map(self.names.__getitem__, self.numbers.tolist())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def number_ids(first: Sequence[str], second: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The ids of two columns, in the order in which they appear in one and then the other.

    Returns:
        the ids, no two alike, and of each column their places; int64, shape (length,).
    """
    if isinstance(first, NumberedIds) and isinstance(second, NumberedIds) and first.names is second.names:
        numbers = np.concatenate([first.numbers, second.numbers])
        appears = np.full(len(first.names), len(numbers))
        appears[numbers[::-1]] = np.arange(len(numbers))[::-1]  # what is written last stays
        if (appears < len(numbers)).all() and (appears[1:] > appears[:-1]).all():
            return list(first.names), first.numbers, second.numbers
        order = np.argsort(appears)[: np.count_nonzero(appears < len(numbers))]
        place = np.empty(len(appears), np.int64)
        place[order] = np.arange(len(order))
        return [first.names[row] for row in order.tolist()], place[first.numbers], place[second.numbers]
    number = {name: place for place, name in enumerate(dict.fromkeys(itertools.chain(first, second)))}
    columns = [np.fromiter(map(number.__getitem__, side), np.int64, len(side)) for side in (first, second)]
    return list(number), columns[0], columns[1]
