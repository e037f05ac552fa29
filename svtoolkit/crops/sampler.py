"""Which entries a batch holds, from the number of the batch alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import numpy as np

from svtoolkit.crops.class_tuples import ClassTuples, check_tuples
from svtoolkit.errors import UserError


@dataclass(frozen=True)
class Windows:
    """Groups of entries, such as those of a shard, of which a few at a time are shuffled together.

    Attributes:
        group: of each entry, counted from 0, int, shape (entries,).
        size: groups whose entries are shuffled together.
    """

    group: np.ndarray
    size: int

    def gather(self, entries: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Entries in random order -> window by window, each in that order; which groups meet is random, too."""
        count = int(self.group.max()) + 1
        window = np.empty(count, dtype=np.int64)
        window[rng.permutation(count)] = np.arange(count) // self.size
        return entries[np.argsort(window[self.group[entries]], kind="stable")]


@dataclass(eq=False)
class BatchSampler:
    """An exact shuffle of all entries an epoch, rounded down to whole batches; it can begin at any step.

    Iterating yields micro-batches of (epoch, entry) from ``start_step`` on, so that a run is resumed from any
    step and loader workers need no state. The micro-batches of a step are dealt to the processes in consecutive runs:
    what a micro-batch holds does not depend on the number of processes, and each gets equally many.

    Args:
        num_entries: entries of the training set.
        batch_size: effective batch, entries an optimizer step of all processes.
        micro_batch: entries that come together; ``processes`` x ``micro_batch`` divides ``batch_size``.
        seed: of the shuffles.
        rank, processes: which of how many processes the micro-batches are for.
        windows: of entries that are shuffled together; None: all are.
        tuples: of entries that come together; None: each comes by itself.

    Attributes:
        start_step, total_steps: optimizer steps that iteration begins after and ends at; one epoch unless set.
    """

    num_entries: int
    _: KW_ONLY
    batch_size: int
    micro_batch: int
    seed: int
    rank: int = 0
    processes: int = 1
    windows: Windows | None = None
    tuples: ClassTuples | None = None

    def __post_init__(self) -> None:
        if self.num_entries < self.batch_size:
            fitting = fitting_batch_size(self.num_entries, self.processes)
            raise UserError(
                f"trainer.batch_size is {self.batch_size}, but the training set has {self.num_entries} crops an epoch "
                f"(utterances x data.speeds x data.warps); lower it, for example to trainer.batch_size={fitting}"
            )
        self.share = share_of(self.batch_size, self.processes)
        if not 0 < self.micro_batch <= self.share or self.share % self.micro_batch:
            shared = f" / {self.processes} processes" if self.processes > 1 else ""
            raise UserError(
                f"trainer.micro_batch is {self.micro_batch}, expected a divisor of trainer.batch_size{shared}, "
                f"which is {self.share}"
            )
        if self.tuples is not None:
            check_tuples(self.micro_batch, self.tuples.size)
        self.start_step = 0
        self.total_steps = self.steps_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        return self.num_entries // self.batch_size

    def shuffle(self, epoch: int) -> np.ndarray:
        """The order of all entries in an epoch (counted from 0), shape (num_entries,)."""
        rng = np.random.default_rng([self.seed, epoch])
        entries = rng.permutation(self.num_entries)
        for arrangement in (self.windows, self.tuples):
            entries = entries if arrangement is None else arrangement.gather(entries, rng)
        return entries

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch, order = -1, np.empty(0, dtype=np.int64)
        for step in range(self.start_step, self.total_steps):
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                order = self.shuffle(epoch)
            first = step % self.steps_per_epoch * self.batch_size + self.rank * self.share
            for begin in range(first, first + self.share, self.micro_batch):
                yield [(epoch, int(entry)) for entry in order[begin : begin + self.micro_batch]]

    def __len__(self) -> int:
        return (self.total_steps - self.start_step) * (self.share // self.micro_batch)


def fitting_batch_size(entries: int, processes: int = 1, micro_batch: int = 1) -> int:
    """The largest batch by which an epoch has two steps: a power of two times what has to divide it.

    Args:
        entries: crops an epoch; of fewer than four a process it is one step.
        processes: that share the batch equally; each needs two crops, of which BatchNorm takes the variance.
        micro_batch: that divides the share of each, unless the epoch has too few crops for it.
    """
    unit = processes * micro_batch if 2 * processes * micro_batch <= entries else processes
    fitting = unit << max(1, entries // 2 // unit).bit_length() - 1
    return max(fitting, 2 * processes) if 2 * processes <= entries else fitting


def share_of(batch_size: int, processes: int) -> int:
    """Entries of an effective batch that each of several processes takes.

    Raises:
        UserError: they cannot share it equally.
    """
    if batch_size % processes:
        raise UserError(
            f"trainer.batch_size is {batch_size}, which {processes} processes cannot share equally; "
            f"expected a multiple of {processes}, such as {max(1, round(batch_size / processes)) * processes}"
        )
    return batch_size // processes
