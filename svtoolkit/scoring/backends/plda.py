"""Two-covariance PLDA: a speaker is drawn about the mean of all, a recording about its speaker, both normally.

S. Ioffe, "Probabilistic linear discriminant analysis", ECCV 2006; N. Brümmer, E. de Villiers, "The speaker partitioning
problem", Odyssey 2010, section 4; the model of Kaldi (ivector/plda.cc) and of WeSpeaker. The length is normalised
before (D. Garcia-Romero, C. Espy-Wilson, "Analysis of i-vector length normalization in speaker recognition systems",
Interspeech 2011).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svtoolkit.config.backends import PLDAConfig
from svtoolkit.errors import UserError
from svtoolkit.scoring.backends import lda
from svtoolkit.scoring.backends.backend import Trained
from svtoolkit.scoring.backends.covariance import diagonalise, ledoit_wolf, shrink
from svtoolkit.scoring.backends.stage import Stage
from svtoolkit.scoring.backends.training_data import ClassStatistics, LabelledEmbeddings


@dataclass(frozen=True)
class TwoCovariance:
    """A speaker y is drawn from N(mean, between), each of his recordings from N(y, within)."""

    mean: np.ndarray
    within: np.ndarray
    between: np.ndarray


@dataclass(frozen=True)
class Prior:
    """Inverse Wishart priors: after each step of EM a covariance is (1 - share) of what it was, and share scale I.

    With shares of 0 EM finds the maximum of the likelihood, otherwise that of likelihood times prior.
    """

    within_share: float = 0.0
    within_scale: float = 1.0
    between_share: float = 0.0
    between_scale: float = 1.0


def train(training: LabelledEmbeddings, settings: PLDAConfig) -> Trained:
    """LDA, length one, then the two covariances by EM; ends in coordinates where within is I and between diagonal.

    Raises:
        UserError: as :func:`svtoolkit.scoring.backends.lda.train`; ``iterations`` below 1.
    """
    if settings.iterations < 1:
        raise UserError(f"iterations is {settings.iterations}, expected 1 or more")
    projected = lda.train(training, settings)
    statistics = training.after(projected.stages[0]).statistics()
    model, prior = initial_model(statistics, settings.shrinkage)
    for _ in range(settings.iterations):
        model = em_step(model, statistics, prior)
    turn, between = diagonalise(model.between, model.within)
    facts = projected.facts | {
        "within_shrinkage": prior.within_share,
        "between_shrinkage": prior.between_share,
        "log_likelihood": log_likelihood(model, statistics) / int(statistics.counts.sum()),
    }
    return Trained((*projected.stages, Stage(model.mean, turn, unit=False)), np.maximum(between, 0.0), facts)


def initial_model(statistics: ClassStatistics, shrinkage: float | None) -> tuple[TwoCovariance, Prior]:
    """Covariance within speakers and that of their means, both shrunk, and the prior that shrinks them so at each step.

    Args:
        shrinkage: the share of both; None: of Ledoit and Wolf, which is the larger the fewer there are.
    """
    within, within_share = statistics.within(shrinkage)
    mean = statistics.means.mean(axis=0)
    differences = statistics.means - mean
    count, size = differences.shape
    between = differences.T @ differences / count
    if shrinkage is None:
        fourth = float((np.einsum("nd,nd->n", differences, differences) ** 2).sum())
        shrinkage = ledoit_wolf(between, fourth, count)
    noise = float(np.trace(within)) * float((1 / statistics.counts).mean())  # of the means, in their covariance
    scale = max(0.0, float(np.trace(between)) - noise) / size
    prior = Prior(within_share, float(np.trace(within)) / size, shrinkage, scale)
    return TwoCovariance(mean, within, shrink(between, shrinkage)), prior


def em_step(model: TwoCovariance, statistics: ClassStatistics, prior: Prior) -> TwoCovariance:
    """One step of EM with the speakers as hidden variables, in coordinates where both covariances are diagonal.

    There the posterior of a speaker of n recordings has, in a direction of variance v between speakers, the variance
    v / (1 + n v), and its mean is n v / (1 + n v) times that of his recordings.
    """
    turn, variances = diagonalise(model.between, model.within)
    variances = np.maximum(variances, 0.0)
    counts = statistics.counts[:, None].astype(np.float64)
    means = (statistics.means - model.mean) @ turn.T
    posterior_variances = variances / (1 + counts * variances)
    posterior_means = counts * posterior_variances * means
    mean = posterior_means.mean(axis=0)
    about, left = posterior_means - mean, means - posterior_means
    between = (about.T @ about + np.diag(posterior_variances.sum(axis=0))) / len(counts)
    uncertain = np.diag((counts * posterior_variances).sum(axis=0))
    within = (turn @ statistics.scatter @ turn.T + (left.T * counts[:, 0]) @ left + uncertain) / counts.sum()
    back = np.linalg.inv(turn)
    return TwoCovariance(
        model.mean + back @ mean,
        shrink(_symmetric(back @ within @ back.T), prior.within_share, prior.within_scale),
        shrink(_symmetric(back @ between @ back.T), prior.between_share, prior.between_scale),
    )


def log_likelihood(model: TwoCovariance, statistics: ClassStatistics) -> float:
    """Of all embeddings, in nats."""
    turn, variances = diagonalise(model.between, model.within)
    counts = statistics.counts[:, None]
    spread = 1 + counts * variances
    means = (statistics.means - model.mean) @ turn.T
    size, total = len(turn), int(counts.sum())
    squares = float(np.trace(turn @ statistics.scatter @ turn.T)) + float((counts * means**2 / spread).sum())
    logs = total * size * float(np.log(2 * np.pi)) + float(np.log(spread).sum())
    return total * float(np.linalg.slogdet(turn)[1]) - (logs + squares) / 2


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2
