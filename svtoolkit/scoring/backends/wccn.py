"""Within-class covariance normalisation: directions in which recordings of one speaker differ count less.

A. O. Hatch, S. Kajarekar, A. Stolcke, "Within-class covariance normalization for SVM-based speaker recognition",
Interspeech 2006; before the cosine: N. Dehak et al., IEEE Transactions on Audio, Speech and Language
Processing 19, 2011.
"""

from __future__ import annotations

from svtoolkit.config.backends import WhiteningConfig
from svtoolkit.scoring.backends.backend import Trained
from svtoolkit.scoring.backends.covariance import whitening
from svtoolkit.scoring.backends.stage import Stage
from svtoolkit.scoring.backends.training_data import LabelledEmbeddings


def train(training: LabelledEmbeddings, settings: WhiteningConfig) -> Trained:
    """W^(-1/2) of the shrunk covariance within speakers; any other root gives the same cosines."""
    statistics = training.statistics()
    within, shrinkage = statistics.within(settings.shrinkage)
    return Trained((Stage(statistics.mean, whitening(within), unit=True),), None, {"shrinkage": shrinkage})
