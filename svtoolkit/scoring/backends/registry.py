"""Back ends by name."""

from __future__ import annotations

from svtoolkit.config.backends import LDAConfig, PLDAConfig, WhiteningConfig
from svtoolkit.registry import Registry, Row

BACKENDS = Registry(
    "back end",
    "svtoolkit.backends",
    {
        "lda": Row("svtoolkit.scoring.backends.lda:train", LDAConfig, help="linear discriminant analysis, cosine"),
        "wccn": Row("svtoolkit.scoring.backends.wccn:train", help="within-class covariance normalisation, cosine"),
        "plda": Row("svtoolkit.scoring.backends.plda:train", PLDAConfig, help="LDA, two-covariance likelihood ratio"),
    },
    WhiteningConfig,
)
"""Name -> what trains it: takes ``LabelledEmbeddings``, centred and of length one, and the settings of the row, and
returns a ``Trained``."""
