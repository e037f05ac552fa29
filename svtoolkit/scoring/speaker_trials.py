"""Who speaks in the trials of a list, and how many trials speakers make."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DENSE = 1 << 22
"""Pairs of speakers of which all are counted, whether they have trials or not."""


class SpeakerTrials(NamedTuple):
    """Who speaks in the trials of a list.

    Attributes:
        enrol, test: numbers of the speakers, from 0, shape (trials,).
        target: bool, shape (trials,).
        speakers: how many there are.
    """

    enrol: np.ndarray
    test: np.ndarray
    target: np.ndarray
    speakers: int

    def by_speaker(self, chosen: np.ndarray) -> Counts:
        """The trials where ``chosen``, shape (trials,), is true, by their speakers."""
        targets, nontargets = chosen & self.target, chosen & ~self.target
        pairs = self.enrol[nontargets].astype(np.int64) * self.speakers + self.test[nontargets]
        of_speaker = np.bincount(self.enrol[targets], minlength=self.speakers).astype(np.float64)
        if self.speakers**2 <= max(DENSE, len(chosen)):
            dense = np.bincount(pairs, minlength=self.speakers**2).astype(np.float64)
            return Counts(of_speaker, dense.reshape(self.speakers, -1))
        from scipy.sparse import csr_array

        places, counts = np.unique(pairs, return_counts=True)
        begins = np.searchsorted(places, np.arange(self.speakers + 1) * self.speakers)
        shape = (self.speakers, self.speakers)
        return Counts(of_speaker, csr_array((counts.astype(np.float64), places % self.speakers, begins), shape=shape))


class Counts(NamedTuple):
    """Numbers of trials, integers in float64: target trials of each speaker, non-target trials of each pair."""

    targets: np.ndarray
    nontargets: np.ndarray | csr_array

    def weigh(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many target and non-target trials speakers make that were drawn so many times.

        Args:
            drawn: int, shape (draws, speakers).

        Returns:
            int64, both of shape (draws,).
        """
        columns = drawn.T.astype(np.float64)
        nontargets = np.einsum("sd,sd->d", columns, self.nontargets @ columns)
        return (self.targets @ columns).astype(np.int64), nontargets.astype(np.int64)
