"""What back ends are trained on: embeddings by speaker, and their sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from svtoolkit.data.utt2spk import invert
from svtoolkit.errors import UserError
from svtoolkit.scoring.backends.covariance import ledoit_wolf, shrink
from svtoolkit.scoring.backends.stage import Stage
from svtoolkit.scoring.cosine import BLOCK_VALUES, EmbeddingTable, require_embeddings


@dataclass(frozen=True)
class ClassStatistics:
    """Sums over the embeddings of speakers, float64.

    Attributes:
        counts: utterances of each speaker, (speakers,).
        means: of each speaker, (speakers, dimension).
        scatter: sum of the products of the differences from these means, (dimension, dimension).
        fourth: sum of the fourth powers of the lengths of these differences.
    """

    counts: np.ndarray
    means: np.ndarray
    scatter: np.ndarray
    fourth: float

    @property
    def mean(self) -> np.ndarray:
        """Of all utterances, (dimension,)."""
        return np.asarray(self.counts @ self.means / self.counts.sum())

    def within(self, shrinkage: float | None) -> tuple[np.ndarray, float]:
        """The shrunk covariance within speakers, with utterances less speakers as divisor, and the share of it.

        Args:
            shrinkage: the share; None: :func:`~svtoolkit.scoring.backends.covariance.ledoit_wolf`.
        """
        count = int(self.counts.sum())
        if shrinkage is None:
            shrinkage = ledoit_wolf(self.scatter / count, self.fourth, count)
        return shrink(self.scatter / (count - len(self.counts)), shrinkage), shrinkage


@dataclass(frozen=True)
class LabelledEmbeddings:
    """Embeddings of training speakers, after the stages that they have gone through.

    Attributes:
        table: as they were extracted.
        rows: of the table, those of one speaker together, int, (utterances,).
        speakers: number of the speaker of each, ascending, int, (utterances,).
        stages: applied whenever embeddings are read.
    """

    table: EmbeddingTable
    rows: np.ndarray
    speakers: np.ndarray
    stages: tuple[Stage, ...] = ()

    @classmethod
    def of(cls, table: EmbeddingTable, utt2spk: Mapping[str, str]) -> LabelledEmbeddings:
        """Those of the utterances of utt2spk.

        Raises:
            UserError: an utterance has no embedding; fewer than two speakers, or none with two utterances.
        """
        require_embeddings(utt2spk, table)
        spk2utt = invert(utt2spk)
        counts = [len(utterances) for utterances in spk2utt.values()]
        if len(counts) < 2 or max(counts) < 2:
            most = f"; the most utterances of a speaker are {max(counts)}" if counts else ""
            raise UserError(
                f"found {len(counts)} speakers{most}; a back end needs 2 speakers and one of them with 2 utterances, "
                "and some hundreds to be of use"
            )
        rows = table.lookup([utterance for utterances in spk2utt.values() for utterance in utterances])
        return cls(table, rows, np.repeat(np.arange(len(counts)), counts))

    def after(self, stage: Stage) -> LabelledEmbeddings:
        """The same, gone through one stage more."""
        return replace(self, stages=(*self.stages, stage))

    def pooled(self) -> LabelledEmbeddings:
        """The same, as if all were of one speaker."""
        return replace(self, speakers=np.zeros_like(self.speakers))

    def statistics(self) -> ClassStatistics:
        """Two passes over the embeddings, a block at a time."""
        counts = np.bincount(self.speakers)
        size = len(self.stages[-1].matrix) if self.stages else self.table.dimension
        means, scatter, fourth = np.zeros((len(counts), size)), np.zeros((size, size)), 0.0
        for vectors, speakers in self._blocks():
            begins = np.flatnonzero(np.diff(speakers, prepend=-1))
            means[speakers[begins]] += np.add.reduceat(vectors, begins)
        means /= counts[:, None]
        for vectors, speakers in self._blocks():
            differences = vectors - means[speakers]
            scatter += differences.T @ differences
            fourth += float((np.einsum("nd,nd->n", differences, differences) ** 2).sum())
        return ClassStatistics(counts, means, scatter, fourth)

    def _blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        step = max(1, BLOCK_VALUES // self.table.dimension)
        for start in range(0, len(self.rows), step):
            rows = self.rows[start : start + step]
            vectors = self.table.matrix[rows].astype(np.float64)
            names = [self.table.utterances[row] for row in rows] if self.stages else []
            for stage in self.stages:
                vectors = stage.apply(vectors, names)
            yield vectors, self.speakers[start : start + step]
