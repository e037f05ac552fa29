"""A folder of transformers with an x-vector head: config.json, preprocessor_config.json and the weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from svtoolkit.checkpoints.foreign_file import read_json_settings, read_weights
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.config.front_ends import WaveformConfig
from svtoolkit.errors import UserError
from svtoolkit.models.transformers_xvector import ARCHITECTURES, HEADS, complete_config, shortest
from svtoolkit.system.regular_file import is_regular

CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
EXTRACTOR = "Wav2Vec2FeatureExtractor"

OLD_NORM = re.compile(r"\.(weight)_([gv])$")
"""Of weight normalisation before torch 2.0; magnitude and direction are called original0 and original1 since."""


def find_weights(path: Path) -> Path | None:
    """The file of weights beside a config.json of one of these networks; None: there is none.

    Raises:
        UserError: config.json is of another network of these families, or has no weights beside it.
    """
    if path.name in WEIGHTS and is_regular(path):
        path = path.parent
    file = path / CONFIG
    if not is_regular(file):
        return None
    config = read_json_settings(file)
    names = config.get("architectures")
    architectures = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    if config.get("model_type") not in ARCHITECTURES.values() and not set(architectures) & set(ARCHITECTURES):
        return None
    _architecture(file, config)
    weights = next((path / name for name in WEIGHTS if is_regular(path / name)), None)
    if weights is None:
        raise UserError(f"{file}: has no {' or '.join(WEIGHTS)} beside it; copy the weights of the same release there")
    return weights


def read(weights: Path, _front_end: str | None) -> tuple[dict[str, Tensor], ModelDescription]:
    """Weights under our names, and what both JSON files say.

    Raises:
        UserError: damage, a configuration that makes no network, another preprocessing than the waveform's.
    """
    file = weights.with_name(CONFIG)
    content = read_json_settings(file)
    architecture = _architecture(file, content)
    try:
        config = complete_config(architecture, content)
        samples = shortest(config)
    except (TypeError, ValueError) as error:
        raise UserError(f"{file}: {error}") from error
    features = _features(weights.with_name(PREPROCESSOR), samples)
    model = {
        "name": "transformers_xvector",
        "num_bins": 1,
        "embedding_dim": config["xvector_output_dim"],
        "architecture": architecture,
        "config": config,
    }
    training = {"toolkit": "transformers", "release": weights.absolute().parent.name, "architecture": architecture}
    return _ours(read_weights(weights).weights), ModelDescription(model, features, training)


def _ours(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the heads, and with the names that weight normalisation has today."""
    return {
        "network." + OLD_NORM.sub(_renamed, name): tensor
        for name, tensor in theirs.items()
        if name.partition(".")[0] not in HEADS
    }


def _renamed(found: re.Match[str]) -> str:
    return f".parametrizations.{found[1]}.original{'gv'.index(found[2])}"


def _features(file: Path, samples: int) -> WaveformConfig:
    if not is_regular(file):
        raise UserError(f"{file}: there is no such file, which says whether waveforms are normalised; copy it there")
    content = read_json_settings(file)
    kind = content.get("feature_extractor_type", EXTRACTOR)
    if kind != EXTRACTOR or content.get("feature_size", 1) != 1:
        raise UserError(
            f"{file}: feature_extractor_type is {kind!r:.80}, expected {EXTRACTOR} with a feature_size of 1"
        )
    rate, normalised = content.get("sampling_rate", 16000), content.get("do_normalize", True)
    if type(rate) is not int or not 1 <= rate <= 1_000_000 or type(normalised) is not bool:
        raise UserError(
            f"{file}: sampling_rate is {rate!r:.80} and do_normalize {normalised!r:.80}, expected Hz, and true or false"
        )
    return WaveformConfig(sample_rate=rate, frame_length_ms=1000 * samples / rate, norm_signal=normalised)


def _architecture(file: Path, config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    if not (isinstance(names, list) and len(names) == 1 and names[0] in ARCHITECTURES):
        raise UserError(
            f"{file}: architectures is {names!r:.200}, expected one of {', '.join(ARCHITECTURES)}: without an x-vector "
            "head a network gives no embedding of a speaker"
        )
    name = str(names[0])
    if config.get("model_type", ARCHITECTURES[name]) != ARCHITECTURES[name]:
        raise UserError(
            f"{file}: model_type is {config['model_type']!r:.80}, expected {ARCHITECTURES[name]!r} of a {name}"
        )
    return name
