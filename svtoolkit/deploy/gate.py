"""Whether embeddings of an exported file are those of torch: an export that fails is not written."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from svtoolkit.checkpoints.exported import EQUAL_COSINE, EQUAL_SCORE
from svtoolkit.data.trials import Trials
from svtoolkit.deploy.recordings import Recording
from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores
from svtoolkit.scoring.metrics import equal_error_rate

MOST_PAIRS = 20_000
"""Of recordings whose scores are compared where there is no list of trials."""


@dataclass(frozen=True)
class Tolerance:
    """How far a file may be from torch.

    Attributes:
        cosine: least cosine of the two embeddings of a recording.
        score: greatest difference of the two scores of a pair of recordings.
        eer: highest equal error rate on the user's trials, as a share of torch's; one trial more is allowed.
    """

    cosine: float
    score: float
    eer: float = 1.02


TOLERANCES = {
    "fp32": Tolerance(EQUAL_COSINE, EQUAL_SCORE),
    "fp16": Tolerance(EQUAL_COSINE, EQUAL_SCORE),
    "bf16": Tolerance(0.999, 1e-2),
    "int8": Tolerance(0.98, 5e-2),
}
"""By precision."""


@dataclass(frozen=True)
class Agreement:
    """What a comparison found.

    Attributes:
        runtime: what ran the file.
        recordings, scores: how many were compared.
        least_cosine, most_score: the worst of them.
        eer, eer_torch: on the user's trials; None without them.
    """

    runtime: str
    recordings: int
    scores: int
    least_cosine: float
    most_score: float
    eer: float | None = None
    eer_torch: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        text = (
            f"{self.runtime}: cosine {self.least_cosine:.6f} or more over {self.recordings} recordings, scores within "
            f"{self.most_score:.2g} over {self.scores} pairs"
        )
        if self.eer is None or self.eer_torch is None:
            return text
        return f"{text}, equal error rate {100 * self.eer:.3f} % (torch: {100 * self.eer_torch:.3f} %)"


def embed_all(embed: Callable[[np.ndarray], np.ndarray], recordings: Sequence[Recording]) -> np.ndarray:
    """(recordings, embedding_dim) float32."""
    return np.stack([embed(recording.samples) for recording in recordings]).astype(np.float32)


def compare(
    runtime: str, found: np.ndarray, expected: np.ndarray, recordings: Sequence[Recording], trials: Trials | None
) -> Agreement:
    """Embeddings of a file against those of torch, each (recordings, embedding_dim).

    Raises:
        UserError: embeddings of another shape; trials of other recordings.
    """
    if found.shape != expected.shape:
        raise UserError(f"{runtime} makes embeddings of shape {found.shape}, expected {expected.shape}")
    names = [recording.name for recording in recordings]
    if not np.isfinite(found).all():
        return Agreement(runtime, len(names), 0, math.nan, math.nan)
    tables = [EmbeddingTable(names, matrix) for matrix in (found, expected)]
    units = [matrix / np.linalg.norm(matrix, axis=1, keepdims=True) for matrix in (found, expected)]
    cosines = np.einsum("nd,nd->n", *(each.astype(np.float64) for each in units))
    if trials is not None:
        theirs, ours = (cosine_scores(table, trials) for table in tables)
    else:
        pairs = np.array(list(itertools.islice(itertools.combinations(range(len(names)), 2), MOST_PAIRS))).reshape(
            -1, 2
        )
        theirs, ours = (np.einsum("nd,nd->n", each[pairs[:, 0]], each[pairs[:, 1]]) for each in units)
    most = float(np.abs(theirs - ours).max()) if len(ours) else 0.0
    agreement = Agreement(runtime, len(names), len(ours), float(cosines.min()), most)
    if trials is None:
        return agreement
    rates = [float(equal_error_rate(scores, trials.target)[0]) for scores in (theirs, ours)]
    return replace(agreement, eer=rates[0], eer_torch=rates[1])


def why_refused(agreement: Agreement, tolerance: Tolerance, fewest: int | None = None) -> str | None:
    """Why a file is not good enough; None: it is.

    Args:
        fewest: trials of the rarer kind, one of which may fall on the other side of the threshold.
    """
    if not agreement.least_cosine >= tolerance.cosine:  # of NaN, too
        return f"a cosine of {agreement.least_cosine:.6f} is below {tolerance.cosine:g}"
    if not agreement.most_score <= tolerance.score:
        return f"a score differs by {agreement.most_score:.2g}, more than {tolerance.score:g}"
    if agreement.eer is not None and agreement.eer_torch is not None:
        allowed = max(tolerance.eer * agreement.eer_torch, agreement.eer_torch + (1.0 / fewest if fewest else 0.0))
        if agreement.eer > allowed:
            return f"the equal error rate is {100 * agreement.eer:.3f} %, more than {100 * allowed:.3f} %"
    return None
