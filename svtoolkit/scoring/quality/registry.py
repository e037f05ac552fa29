"""Quality measures by name; listed without importing any of them."""

from __future__ import annotations

from svtoolkit.registry import Registry, Row

MEASURES = Registry(
    "quality measure",
    "svtoolkit.quality_measures",
    {
        "log_duration": Row("svtoolkit.scoring.quality.durations:log_duration", help="of the recording"),
        "log_voice": Row("svtoolkit.scoring.quality.durations:log_voice", help="of the voice in it"),
        "magnitude": Row("svtoolkit.scoring.quality.embeddings:magnitude", help="length of the embedding"),
        "cohort_mean": Row("svtoolkit.scoring.quality.embeddings:cohort_mean", help="mean cosine to the closest"),
    },
)
"""Name -> what measures it. A target takes a ``Measured`` and returns finite values of its utterances, float64, shape
(utterances,)."""
