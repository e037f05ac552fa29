"""A trained back end: what becomes of an embedding, and how two are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from svtoolkit.errors import UserError
from svtoolkit.scoring.backends.likelihood_ratio import LikelihoodRatio
from svtoolkit.scoring.backends.stage import Stage
from svtoolkit.scoring.cosine import BLOCK_VALUES, EmbeddingTable, on_all_cores


class Trained(NamedTuple):
    """What the training of a kind gives.

    Attributes:
        stages: that embeddings go through, after they were centred and made of length one.
        between: of the likelihood ratio, (dimension,); None: the cosine.
        facts: what was chosen, for the record: plain numbers.
    """

    stages: tuple[Stage, ...]
    between: np.ndarray | None
    facts: dict[str, Any]


@dataclass(frozen=True)
class Backend:
    """As `svt backend` writes it.

    Attributes:
        kind: of the registry.
        stages: all that embeddings go through.
        between: variances of the likelihood ratio, (dimension,); None: cosines.
        facts: settings and what was chosen; ``model_sha256``: of the network whose embeddings it was trained on.
    """

    kind: str
    stages: tuple[Stage, ...]
    between: np.ndarray | None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dimension(self) -> int:
        """Of what is compared."""
        return len(self.stages[-1].matrix)

    @property
    def comparison(self) -> LikelihoodRatio | None:
        """How embeddings that came out of :meth:`apply` are compared; None: by their cosine."""
        return None if self.between is None else LikelihoodRatio(self.between)

    def apply(self, table: EmbeddingTable) -> EmbeddingTable:
        """Embeddings as the back end compares them: in float64, kept in the type of the table.

        Raises:
            UserError: embeddings of another dimension, or one of which nothing is left.
        """
        wanted = len(self.stages[0].offset)
        if table.dimension != wanted:
            raise UserError(
                f"the embeddings have {table.dimension} dimensions, those that the back end was trained on {wanted}; "
                "take embeddings of the same network, or train a back end for these"
            )
        found = np.empty((len(table), self.dimension), table.matrix.dtype)

        def fill(block: slice) -> None:
            vectors = table.matrix[block].astype(np.float64)
            for stage in self.stages:
                vectors = stage.apply(vectors, table.utterances[block])
            found[block] = vectors

        step = max(1, BLOCK_VALUES // table.dimension)
        with threadpool_limits(1):  # a block a core; the bytes are the same on any number of cores
            on_all_cores(fill, [slice(start, start + step) for start in range(0, len(table), step)])
        return EmbeddingTable(table.utterances, found)
