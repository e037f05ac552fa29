"""Scores of several systems and quality measures of the recordings, fused to one log-likelihood ratio.

llr = offset + sum of weight * feature. Features are the scores of each system and, of each quality measure, the sum
and the absolute difference of its values on both sides: the larger and the smaller of them are sums of these two, so
nothing depends on which utterance is the enrolment. Weights come from logistic regression.

Fusion: S. Pigeon, P. Druyts, P. Verlinde, "Applying logistic regression to the fusion of the NIST'99 1-speaker
submissions", Digital Signal Processing 10 (2000); N. Brümmer et al., "Fusion of heterogeneous speaker recognition
systems in the STBU submission for the NIST SRE 2006", IEEE TASLP 15 (2007). Quality measures in it: M. I. Mandasari,
R. Saeidi, M. McLaren, D. van Leeuwen, "Quality measure functions for calibration of speaker recognition systems in
various duration conditions", IEEE TASLP 21 (2013); J. Thienpondt, B. Desplanques, K. Demuynck, "The IDLab VoxSRC-20
submission: large margin fine-tuning and quality-aware score calibration in DNN based speaker verification", ICASSP
2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.calibration import fit_logistic
from svtoolkit.scoring.cosine import first_of
from svtoolkit.scoring.metrics import check_scores
from svtoolkit.scoring.quality.table import QualityTable

SUM, DIFFERENCE = " sum", " difference"


@dataclass(frozen=True)
class Features:
    """What a trial is judged by.

    Attributes:
        names: of the columns.
        matrix: float64, shape (trials, features).
    """

    names: list[str]
    matrix: np.ndarray


def trial_features(scores: Sequence[np.ndarray], trials: Trials, quality: QualityTable | None = None) -> Features:
    """Scores of every system, and what the quality measures of both sides of a trial have in common.

    Args:
        scores: of each system, finite, shape (trials,).
        trials: the pairs.
        quality: of their utterances; None: no measure takes part.

    Raises:
        UserError: utterances of the trials have no quality; names the first of them.
    """
    names = [f"score {number}" for number in range(1, len(scores) + 1)]
    columns = list(scores)
    if quality is not None:
        values = quality.of(trials.names)
        enrol, test = (values[side] for side in trials.numbered)
        for column, measure in enumerate(quality.measures):
            names += [measure + SUM, measure + DIFFERENCE]
            columns += [enrol[:, column] + test[:, column], np.abs(enrol[:, column] - test[:, column])]
    return Features(names, np.stack(columns, axis=1, dtype=np.float64))


@dataclass(frozen=True)
class Fusion:
    """An affine map of features to the natural logarithm of a likelihood ratio.

    Attributes:
        weights: of each feature, by its name.
        offset: of the sum.
    """

    weights: dict[str, float]
    offset: float

    def llr(self, features: Features) -> np.ndarray:
        """Log-likelihood ratios of trials, float64, shape (trials,).

        Raises:
            UserError: other features than those of the fusion; names both.
        """
        if set(features.names) != set(self.weights):
            raise UserError(
                f"the fusion is of {', '.join(self.weights)}, but what is given makes {', '.join(features.names)}; "
                "give as many scores as it was trained with, in that order, and the same quality measures"
            )
        return features.matrix @ np.array([self.weights[name] for name in features.names]) + self.offset

    @classmethod
    def parse(cls, content: Any) -> Fusion:
        """Of plain data, as ``dataclasses.asdict`` gives them.

        Raises:
            ValueError: they are none.
        """
        try:
            weights = {str(name): float(weight) for name, weight in content["weights"].items()}
            fusion = cls(weights, float(content["offset"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError("holds no weights and offset of a fusion") from error
        if not weights or not all(map(math.isfinite, [*weights.values(), fusion.offset])):
            raise ValueError("holds a weight or an offset that is not a finite number, or no weight")
        return fusion


def fit_fusion(features: Features, target: np.ndarray, *, p_target: float = 0.5, l2: float = 1e-4) -> Fusion:
    """The fusion of least prior-weighted cross-entropy; the cost is that of ``fit_logistic``, of standardised features.

    A feature that is the same in all trials gets the weight 0.

    Args:
        features: of trials of speakers who are not those of the evaluation.
        target: true for target trials; shape (trials,).
        p_target: share of target trials that the ratios are best for.
        l2: penalty on the squared weights of standardised features; above 0, as features may be sums of others.

    Raises:
        UserError: a class without trials, a value that is not finite, scores of a system that are all equal.
    """
    matrix = features.matrix
    for name, column in zip(features.names, matrix.T, strict=True):
        try:
            _, target = check_scores(column, target)
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
    mean, spread = matrix.mean(axis=0), matrix.std(axis=0)
    constant = spread <= 1e-12 * np.abs(matrix).max(axis=0)
    same = [name for name, equal in zip(features.names, constant, strict=True) if equal and name.startswith("score ")]
    if same:
        raise UserError(f"{first_of(same)}: all {len(matrix)} scores are equal; expected different ones")
    spread = np.where(constant, np.inf, spread)
    weights, offset = fit_logistic((matrix - mean) / spread, target, p_target=p_target, l2=l2)
    weights = weights / spread
    return Fusion(dict(zip(features.names, weights.tolist(), strict=True)), float(offset - weights @ mean))


def check_unheard(train_speakers: Set[str], speakers: Set[str]) -> None:
    """Refuse a fusion that was trained with speakers of the evaluation: it would look better than it is.

    Raises:
        UserError: names the first shared speakers and their number.
    """
    shared = sorted(train_speakers & speakers)
    if shared:
        raise UserError(
            f"{len(shared)} speakers are in the trials that train the fusion and in those that it is for: "
            f"{first_of(shared)}; train it with trials of training speakers"
        )
