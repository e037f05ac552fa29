"""Linear discriminant analysis: the directions in which speakers differ most, measured by how recordings of one do.

N. Dehak, P. Kenny, R. Dehak, P. Dumouchel, P. Ouellet, "Front-end factor analysis for speaker verification", IEEE
Transactions on Audio, Speech and Language Processing 19, 2011, section III-C: LDA, then WCCN, then the cosine. The
directions here are scaled so that the covariance within speakers is the identity, so that WCCN would change nothing.
"""

from __future__ import annotations

from svtoolkit.config.backends import LDAConfig
from svtoolkit.errors import UserError
from svtoolkit.scoring.backends.backend import Trained
from svtoolkit.scoring.backends.covariance import diagonalise
from svtoolkit.scoring.backends.stage import Stage
from svtoolkit.scoring.backends.training_data import LabelledEmbeddings


def train(training: LabelledEmbeddings, settings: LDAConfig) -> Trained:
    """The directions v of the largest v' B v / v' W v, B between and W within speakers, each with v' W v = 1.

    B weighs each speaker by his utterances, as Kaldi and scikit-learn do; W is shrunk.

    Raises:
        UserError: ``dim`` is none that there can be, or fewer than three speakers.
    """
    statistics = training.statistics()
    most = min(statistics.means.shape[1], len(statistics.counts) - 1)
    dim = max(2, most // 2) if settings.dim is None else settings.dim
    if most < 2:
        raise UserError(
            f"found {len(statistics.counts)} speakers and embeddings of {statistics.means.shape[1]} dimensions; LDA "
            "needs 3 speakers and 2 dimensions, as length one leaves of a single direction the sign alone"
        )
    if not 2 <= dim <= most:
        raise UserError(
            f"dim is {dim}, expected 2 to {most}: the embeddings have {statistics.means.shape[1]} dimensions, and "
            f"{len(statistics.counts)} speakers differ in {len(statistics.counts) - 1}"
        )
    within, shrinkage = statistics.within(settings.shrinkage)
    differences = statistics.means - statistics.mean
    between = (differences.T * statistics.counts) @ differences / statistics.counts.sum()
    turns, _ = diagonalise(between, within)
    stage = Stage(statistics.mean, turns[:dim], unit=True)
    return Trained((stage,), None, {"dim": dim, "shrinkage": shrinkage})
