"""Parts of a batch, for tensors that need not be there at once."""

from __future__ import annotations

from torch import Tensor

PARTS = 8
"""What is added to another tensor at once is computed for so many parts of the batch, one after the other."""


def parts(x: Tensor) -> tuple[Tensor, ...]:
    """Views of ``PARTS`` neighbouring parts of the batch, or fewer."""
    return x.split(-(-len(x) // PARTS))
