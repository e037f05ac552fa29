"""Crops of one class that come together, for a loss that compares crops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svtoolkit.config import AngularPrototypicalConfig, PairwiseConfig
from svtoolkit.errors import UserError


@dataclass(frozen=True)
class ClassTuples:
    """Tuples of entries of one class.

    Attributes:
        label: class of each entry, int, shape (entries,).
        size: entries of a tuple.
    """

    label: np.ndarray
    size: int

    def gather(self, entries: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Entries in random order -> the same entries tuple by tuple, the tuples in random order.

        What is left of the classes, fewer than a tuple of each, comes together in tuples that are of no class; less
        than a tuple of these stands at the end.
        """
        entries = entries[np.argsort(self.label[entries], kind="stable")]
        _, first, counts = np.unique(self.label[entries], return_index=True, return_counts=True)
        place = np.arange(len(entries)) - np.repeat(first, counts)
        is_whole = place < np.repeat(counts // self.size * self.size, counts)
        left = rng.permutation(entries[~is_whole])
        cut = len(left) // self.size * self.size
        tuples = np.concatenate([entries[is_whole], left[:cut]]).reshape(-1, self.size)
        return np.concatenate([rng.permutation(tuples).ravel(), left[cut:]])


def tuple_size(pairwise: PairwiseConfig) -> int:
    """Crops of a class that come together; 1: each comes by itself."""
    return pairwise.crops if isinstance(pairwise, AngularPrototypicalConfig) else 1


def holds_tuples(micro_batch: int, size: int) -> bool:
    """Whether a micro-batch is made of tuples, and of several where crops are compared."""
    return size == 1 or (micro_batch % size == 0 and micro_batch > size)


def check_tuples(micro_batch: int, size: int) -> None:
    """Refuse micro-batches in which tuples have nothing to be compared with.

    Raises:
        UserError: not several tuples.
    """
    if not holds_tuples(micro_batch, size):
        raise UserError(
            f"trainer.micro_batch is {micro_batch} (of a device; null: its share of trainer.batch_size), and "
            f"pairwise.crops is {size}: crops are compared within a micro-batch; expected a multiple of {size} from "
            f"{2 * size} on, or pairwise=none"
        )
