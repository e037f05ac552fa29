"""Which entries a batch holds, from the number of the batch alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from svtoolkit.errors import UserError


class BatchSampler:
    """An exact shuffle of all entries an epoch, rounded down to whole batches; it can begin at any step.

    Iterating yields micro-batches of (epoch, entry) from ``start_step`` on, so that a resumed run goes on where it
    stopped and loader workers need no state.

    Args:
        num_entries: entries of the training set.
        batch_size: effective batch, entries an optimizer step.
        micro_batch: entries that come together; divides ``batch_size``.
        seed: of the shuffles.

    Attributes:
        start_step, total_steps: optimizer steps that iteration begins after and ends at; one epoch unless set.
    """

    def __init__(self, num_entries: int, *, batch_size: int, micro_batch: int, seed: int) -> None:
        if num_entries < batch_size:
            raise UserError(
                f"trainer.batch_size is {batch_size}, but the training set has {num_entries} crops an epoch; lower it"
            )
        if not 0 < micro_batch <= batch_size or batch_size % micro_batch:
            raise UserError(
                f"trainer.micro_batch is {micro_batch}, expected a divisor of trainer.batch_size, which is {batch_size}"
            )
        self.num_entries = num_entries
        self.batch_size = batch_size
        self.micro_batch = micro_batch
        self.seed = seed
        self.start_step = 0
        self.total_steps = self.steps_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        return self.num_entries // self.batch_size

    def shuffle(self, epoch: int) -> np.ndarray:
        """The order of all entries in an epoch (counted from 0), shape (num_entries,)."""
        return np.random.default_rng([self.seed, epoch]).permutation(self.num_entries)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch, order = -1, np.empty(0, dtype=np.int64)
        for step in range(self.start_step, self.total_steps):
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                order = self.shuffle(epoch)
            first = step % self.steps_per_epoch * self.batch_size
            for begin in range(first, first + self.batch_size, self.micro_batch):
                yield [(epoch, int(entry)) for entry in order[begin : begin + self.micro_batch]]

    def __len__(self) -> int:
        return (self.total_steps - self.start_step) * (self.batch_size // self.micro_batch)
