"""The log-likelihood ratio of two-covariance PLDA: both sides are of one speaker, or of two.

With a variance of 1 within speakers and v between them in each of independent directions, n enrolment recordings of
mean e and a test recording t have the ratio, summed over the directions,

    1/2 [v (n e + t)^2 / (1 + (n + 1) v) - v n^2 e^2 / (1 + n v) - v t^2 / (1 + v)]
    - 1/2 log [(1 + (n + 1) v) / ((1 + n v) (1 + v))]

(N. Brümmer, E. de Villiers, "The speaker partitioning problem", Odyssey 2010). It is the product of what it has
of e and of what it has of t: [cross, of t^2, else] . [t, t^2, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.scoring.cosine import BLOCK_VALUES, EmbeddingTable, on_all_cores


@dataclass(frozen=True)
class LikelihoodRatio:
    """Scores of embeddings that have gone through a back end with PLDA.

    Attributes:
        between: v of each direction, (dimension,).
    """

    between: np.ndarray

    def enrolled(self, table: EmbeddingTable, rows: np.ndarray) -> np.ndarray:
        """What the ratio takes of models, each the mean of ``table.recordings`` recordings: (rows, 2 dimension + 1)."""
        v, e = self.between, table.matrix[rows].astype(np.float64)
        n = np.ones((len(rows), 1)) if table.recordings is None else table.recordings[rows, None].astype(np.float64)
        both, enrolled, tested = 1 + (n + 1) * v, 1 + n * v, 1 + v
        squares = n**2 * v * e**2 * (1 / both - 1 / enrolled)
        logs = np.log(both) - np.log(enrolled) - np.log(tested)
        rest = (squares - logs).sum(axis=1, keepdims=True) / 2
        return np.concatenate([n * v * e / both, v * (1 / both - 1 / tested) / 2, rest], axis=1)

    def tested(self, table: EmbeddingTable, rows: np.ndarray) -> np.ndarray:
        """What the ratio takes of test recordings: (rows, 2 dimension + 1)."""
        t = table.matrix[rows].astype(np.float64)
        return np.concatenate([t, t**2, np.ones((len(rows), 1))], axis=1)

    def scores(self, table: EmbeddingTable, trials: Trials) -> np.ndarray:
        """The ratio of every trial in nats, float64, shape (trials,).

        Raises:
            UserError: missing embeddings.
        """
        enrol, test = table.all_rows_of(trials)
        scores = np.empty(len(trials))

        def fill(block: slice) -> None:
            np.einsum(
                "td,td->t", self.enrolled(table, enrol[block]), self.tested(table, test[block]), out=scores[block]
            )

        step = max(1, BLOCK_VALUES // table.dimension)
        on_all_cores(fill, [slice(start, start + step) for start in range(0, len(trials), step)])
        return scores
