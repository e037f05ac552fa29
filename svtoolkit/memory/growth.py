"""How a step grows with its batch, told by one batch: whether a size is a multiple of it, or of a part of it.

The batch is a prime that is one less than a multiple of the parts that ``svtoolkit.reversible.parts`` divides it into:
all parts are of as many crops, another prime, but for the last, which has one crop less. No weight has a size that is a
multiple of any of them. A network of somebody else's may divide a batch in its own way. Multiples of its parts are not
known, only that nothing so large is there without a batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from svtoolkit.reversible.parts import PARTS

LARGE = 1_000_003
"""Crops of a part, at least: rarely is anything else a multiple of that."""
FIXED_TIMES, FIXED_BYTES_A_CROP = 64, 256
"""More than so many times the largest weight, and than so many for each crop, is nothing that does not grow."""


class Growth:
    """A batch that sizes are told apart by.

    Args:
        sizes: that do not grow, as those of weights; without any, what is no multiple of the batch or of a part of it
            does not grow, whatever its size.
        parts: into which some blocks divide the batch.

    Attributes:
        batch: crops.
        part: crops of all parts but the last, which has one less.
        most_fixed: whatever is larger grows.
    """

    def __init__(self, sizes: Iterable[int] = (), parts: int = PARTS) -> None:
        self.parts = parts
        known = {size for size in sizes if size}
        self.part = next(
            part
            for part in itertools.count(LARGE, 4)  # of the last part, half is odd
            if is_prime(part)
            and is_prime(parts * part - 1)
            and all(size % each for size in known for each in (part, parts * part - 1, part // 2))
        )
        self.batch = parts * self.part - 1
        self.most_fixed = max(FIXED_TIMES * max(known), FIXED_BYTES_A_CROP * self.batch) if known else math.inf

    def slope(self, size: int) -> float | None:
        """What each crop adds to something of this size, bytes or operations; None: it does not grow."""
        if not size % self.batch:
            return size // self.batch
        for part in (self.part, self.part - 1):
            if not size % part:
                return size // part / self.parts
        return size / self.batch if size > self.most_fixed else None

    def line(self, size: int) -> tuple[int, float]:
        """What any batch takes of something of this size, and what each crop adds.

        A part grows in steps, which this line is never below: it meets them at one crop, and at one after every step.
        """
        slope = self.slope(size)
        if slope is None:
            return size, 0.0
        return (math.ceil(slope * (self.parts - 1)) if size % self.batch else 0), slope


def is_prime(number: int) -> bool:
    """By division."""
    return number > 1 and all(number % factor for factor in range(2, math.isqrt(number) + 1))
