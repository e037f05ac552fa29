"""pyannote's checkpoint of a WeSpeaker ResNet: a file of lightning's, its class and settings beside the weights.

Its pooling takes the unbiased deviation without an epsilon (pyannote/audio/models/blocks/pooling.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from svtoolkit.checkpoints.foreign_file import glance, read_weights
from svtoolkit.checkpoints.layout import list_names
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.checkpoints.wespeaker import from_wespeaker, network_of
from svtoolkit.config import FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.models.build import complete_model
from svtoolkit.models.front_ends import features_config
from svtoolkit.system.regular_file import is_regular

WEIGHTS, CONFIG, TRANSFORMERS = "pytorch_model.bin", "config.yaml", "config.json"
KEY, PREFIX = "pyannote.audio", "resnet."

CLASSES = {f"WeSpeakerResNet{size}": f"ResNet{size}" for size in (34, 152, 221, 293)}
"""Of pyannote/audio/models/embedding/wespeaker -> what WeSpeaker calls it."""

FIXED = {
    "num_channels": 1,
    "dither": 0.0,
    "round_to_power_of_two": True,
    "snip_edges": True,
    "use_energy": False,
    "fbank_centering_span": None,
}
"""Hyper-parameters that a front end of ours has no choice in."""


def find_weights(path: Path) -> Path | None:
    """The file itself, or pytorch_model.bin of a folder; None: it holds nothing of pyannote's.

    One that cannot be read is its own where config.yaml lies beside it, and config.json, as of transformers, does not.
    """
    file = path / WEIGHTS if path.is_dir() else path
    if not is_regular(file):
        return None
    content = glance(file)
    if content is not None:
        return file if KEY in content else None
    beside = path.is_dir() and is_regular(path / CONFIG) and not is_regular(path / TRANSFORMERS)
    return file if beside else None


def read(weights: Path, _front_end: str | None) -> tuple[dict[str, Tensor], ModelDescription]:
    """Weights under our names, and what stands beside them.

    Raises:
        UserError: damage, another class of pyannote's, a front end that is not known, weights that are no network's.
    """
    found = read_weights(weights)
    architecture = _mapping(_mapping(found.beside, KEY), "architecture")
    name = architecture.get("class")
    if not isinstance(name, str) or name not in CLASSES:
        raise UserError(f"is of pyannote's class {name!r:.80}, and a network is known for {', '.join(CLASSES)} alone")
    odd = [key for key in found.weights if not key.startswith(PREFIX)]
    if odd:
        raise UserError(f"{list_names(odd)} of its weights do not begin with {PREFIX}, expected those of a {name}")
    theirs = {key.removeprefix(PREFIX): tensor for key, tensor in found.weights.items()}
    ours = from_wespeaker(theirs)
    features = _features(_mapping(found.beside, "hyper_parameters"))
    arguments = {"feat_dim": features.num_bins, "embed_dim": len(ours["embedding.weight"]), "pooling_func": "TSTP"}
    model = {**network_of(CLASSES[name], arguments), "pooling_eps": 0.0}
    training = {"toolkit": "pyannote.audio", "release": weights.absolute().parent.name, "model": name}
    return ours, ModelDescription(complete_model(model), features, training)


def _features(settings: Mapping[str, Any]) -> FeaturesConfig:
    """Of the hyper-parameters; those that are not there have the defaults of the class."""
    for key, expected in FIXED.items():
        if settings.get(key, expected) != expected:
            raise UserError(
                f"hyper_parameters.{key} is {settings[key]!r:.80}, and a front end is known for {expected} alone"
            )
    window = settings.get("window_type", FeaturesConfig.window)
    if window not in ("hamming", "povey", "hanning", "rectangular"):
        raise UserError(
            f"hyper_parameters.window_type is {window!r:.80}, expected hamming, povey, hanning or rectangular"
        )
    return features_config(
        {
            "sample_rate": int(_positive(settings, "sample_rate", 16000, whole=True)),
            "num_bins": int(_positive(settings, "num_mel_bins", 80, whole=True)),
            "frame_length_ms": _positive(settings, "frame_length", 25),
            "frame_shift_ms": _positive(settings, "frame_shift", 10),
            "window": window,
        }
    )


def _positive(settings: Mapping[str, Any], key: str, default: float, *, whole: bool = False) -> float:
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 < value < 1e6:
        kind = "whole number" if whole else "number"
        raise UserError(f"hyper_parameters.{key} is {value!r:.80}, expected a {kind} above 0")
    return float(value)


def _mapping(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, Mapping) else {}
