"""Draws from a generator that changes have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Choice = TypeVar("Choice")


def uniform(generator: np.random.Generator, limits: Sequence[float]) -> float:
    """A number between (low, high), each equally likely."""
    low, high = limits
    return low + (high - low) * generator.random()


def pick(generator: np.random.Generator, choices: Sequence[tuple[Choice, float]]) -> Choice:
    """One of (choice, weight), in proportion to the weights."""
    point = generator.random() * sum(weight for _, weight in choices)
    for choice, weight in choices:
        point -= weight
        if point < 0:
            return choice
    return choices[-1][0]  # the sum was rounded up
