"""What a run on stored features cannot do, said before anything is read. Needs no torch."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

from svtoolkit.config import TrainConfig
from svtoolkit.data.audio_table import find_source
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.errors import UserError

OF_WAVEFORMS: dict[str, Any] = {
    "data.speeds": [1.0],
    "data.warps": [1.0],
    "data.channel": None,
    "data.resample": False,
    "data.cache_dir": None,
    "data.shuffle_shards": None,
    "augment.dither": 0,
    "augment.noise": None,
    "augment.reverberation": None,
    "augment.gain": [0.0, 0.0],
    "augment.telephone_probability": 0,
    "augment.added": {},
}
"""Keys that act on audio -> the value at which they do nothing."""


def read_stored_features(config: TrainConfig) -> StoredFeatures | None:
    """What the features are that a run would train on; None where it trains on audio.

    Raises:
        UserError: the configuration asks for what can be done to audio alone, or for another front end.
    """
    folder = config.data.train
    if find_source(Path(folder), config.data.source) != "features":
        return None
    found = {key: reduce(getattr, key.split("."), config) for key in OF_WAVEFORMS}
    asked = [key for key, value in found.items() if value != OF_WAVEFORMS[key]]
    if asked:
        listed = " and ".join(f"{key} is {_shown(found[key])}" for key in asked)
        remedy = " ".join(f"{key}={_shown(OF_WAVEFORMS[key])}" for key in asked)
        raise UserError(
            f"{folder}: is read as features (data.source=features), of which no audio can be had or changed any more, "
            f"but {listed}; set {remedy}, or train on the audio"
        )
    stored = StoredFeatures.read(folder)
    differing = stored.difference(config.features)
    if differing is not None:
        key, wanted, there = differing
        raise UserError(
            f"features.{key} is {_shown(wanted)}, but the features of {folder} were computed with {_shown(there)} "
            f"({stored.file}); set features.{key}={_shown(there)}, or compute them again with `svt features "
            f"features.{key}={_shown(wanted)}`"
        )
    return stored


def _shown(value: Any) -> str:
    """As on the command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
