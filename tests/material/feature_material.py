"""Feature directories of the corpora that the tests have."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from svtoolkit.config import ComputeFeaturesConfig, FeaturesConfig
from svtoolkit.data.feature_writer import FeatureFiles, compute_features
from svtoolkit.models.front_ends import front_end_of

BINS = 24

STORED: dict[str, Any] = {"data__source": "features", "data__speeds": [1.0], "augment__dither": 0.0}
"""What training on stored features changes of ``tiny_config``."""


def write_features_of(data: Path, out: Path, progress: Any = None, **options: Any) -> FeatureFiles:
    """As `svt features` does, with 24 bins unless told otherwise."""
    options = {"features": FeaturesConfig(num_bins=BINS), **options}
    config = ComputeFeaturesConfig(data=str(data), out=str(out), **options)
    return compute_features(config, partial(front_end_of, config.features), progress)


def content_of(out: Path) -> dict[str, bytes]:
    """All files of a feature directory but its lock; paths in them as if it were at <out>."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(out)): path.read_bytes().replace(str(out).encode(), b"<out>") for path in files}
